"""Codes and tokens."""

import os
import stat
from pathlib import Path

import pytest

from dibs.daemon.web.tokens import CODE_LIFE, Permission, TokenStore
from dibs.errors import NotAllowed


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(tmp_path: Path, clock: Clock) -> TokenStore:
    return TokenStore(str(tmp_path / "web-token"), clock)


def test_a_code_works_once(keys):
    code = keys.new_code(Permission.ALL)

    assert [keys.redeem(code.text) for _ in range(2)] == [Permission.ALL, None]


def test_a_code_is_read_as_people_type_it(keys):
    code = keys.new_code(Permission.READ).text

    assert keys.redeem(f" {code.upper().replace('-', ' ')} ") is Permission.READ


def test_a_code_is_good_for_ten_minutes(keys, clock):
    early, late = keys.new_code(Permission.ALL), keys.new_code(Permission.ALL)

    clock.now += CODE_LIFE - 1
    assert keys.redeem(early.text) is Permission.ALL
    clock.now += 2
    assert keys.redeem(late.text) is None


@pytest.mark.parametrize("wrong", ["", "x", "\0", "é\udcff", "a" * 100_000])
def test_ten_wrong_codes_void_the_right_one(keys, wrong):
    code = keys.new_code(Permission.ALL)

    assert {keys.redeem(wrong) for _ in range(10)} == {None}

    assert keys.redeem(code.text) is None


def test_nine_wrong_codes_do_not(keys):
    code = keys.new_code(Permission.ALL)

    assert {keys.redeem("wrong") for _ in range(9)} == {None}

    assert keys.redeem(code.text) is Permission.ALL


def test_a_new_code_can_be_guessed_at_ten_times_again(keys):
    keys.new_code(Permission.ALL)
    for _ in range(15):
        keys.redeem("wrong")

    assert keys.redeem(keys.new_code(Permission.ALL).text) is Permission.ALL


def test_another_user_of_the_machine_cannot_use_a_code_that_changes_things(keys):
    code = keys.new_code(Permission.ALL)

    with pytest.raises(NotAllowed, match="another user"):
        keys.redeem(code.text, is_other_user=True)

    assert keys.redeem(code.text) is Permission.ALL


def test_another_user_of_the_machine_may_look(keys):
    assert keys.redeem(keys.new_code(Permission.READ).text, is_other_user=True) is Permission.READ


def test_another_users_guesses_void_only_what_they_could_have_used(keys):
    ours, theirs = keys.new_code(Permission.ALL), keys.new_code(Permission.READ)

    for _ in range(10):
        assert keys.redeem("wrong", is_other_user=True) is None

    assert keys.redeem(ours.text) is Permission.ALL
    assert keys.redeem(theirs.text) is None


def test_old_codes_give_way(keys):
    codes = [keys.new_code(Permission.ALL).text for _ in range(17)]

    assert keys.redeem(codes[0]) is None
    assert keys.redeem(codes[1]) is Permission.ALL


def test_there_are_two_tokens_and_each_has_its_right(keys):
    tokens = {right: keys.token(right) for right in Permission}

    assert len(set(tokens.values())) == 2
    assert {keys.permission_of(token) for token in tokens.values()} == set(Permission)


@pytest.mark.parametrize("wrong", ["", "x", "0" * 64, "a" * 100_000, "é\udcff", "\0"])
def test_no_other_token_has_any_right(keys, wrong):
    token = keys.token(Permission.ALL)

    assert keys.permission_of(wrong) is None
    assert keys.permission_of(token[:-1] + ("z" if token.endswith(wrong[:1] or "z") else wrong[:1])) is None
    assert keys.permission_of(token + " ") is None


def test_the_token_is_kept_for_its_owner_alone(tmp_path):
    first = TokenStore(str(tmp_path / "web-token"))

    second = TokenStore(str(tmp_path / "web-token"))

    assert first.token(Permission.ALL) == second.token(Permission.ALL)
    assert first.token(Permission.READ) == second.token(Permission.READ)
    assert stat.S_IMODE(os.stat(tmp_path / "web-token").st_mode) == 0o600
    assert os.listdir(tmp_path) == ["web-token"]
    assert (tmp_path / "web-token").read_text().strip() == first.token(Permission.ALL)


@pytest.mark.parametrize("spoilt", ["open", "short", "empty", "a link", "rubbish"])
def test_a_token_that_others_may_know_is_not_used(tmp_path, spoilt):
    path = tmp_path / "web-token"
    token = TokenStore(str(path)).token(Permission.ALL)
    if spoilt == "open":
        path.chmod(0o640)
    elif spoilt == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_bytes({"short": token[:-1].encode(), "empty": b"", "rubbish": b"\xff" * 64}[spoilt])

    keys = TokenStore(str(path))

    assert keys.permission_of(token) is None
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    assert TokenStore(str(path)).token(Permission.ALL) == keys.token(Permission.ALL) != token


def test_a_new_token_ends_what_the_old_ones_could(keys):
    old = [keys.token(right) for right in Permission]
    code = keys.new_code(Permission.ALL)

    keys.renew()

    assert [keys.permission_of(token) for token in old] == [None, None]
    assert keys.redeem(code.text) is None
