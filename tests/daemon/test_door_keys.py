"""Codes and tokens."""

import os
import stat
from pathlib import Path

import pytest

from dibs.daemon.web.tokens import CODE_LIFE, Keys, Right
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
def keys(tmp_path: Path, clock: Clock) -> Keys:
    return Keys(str(tmp_path / "web-token"), clock)


def test_a_code_works_once(keys):
    code = keys.new_code(Right.ALL)

    assert [keys.take(code.text) for _ in range(2)] == [Right.ALL, None]


def test_a_code_is_read_as_people_type_it(keys):
    code = keys.new_code(Right.READ).text

    assert keys.take(f" {code.upper().replace('-', ' ')} ") is Right.READ


def test_a_code_is_good_for_ten_minutes(keys, clock):
    early, late = keys.new_code(Right.ALL), keys.new_code(Right.ALL)

    clock.now += CODE_LIFE - 1
    assert keys.take(early.text) is Right.ALL
    clock.now += 2
    assert keys.take(late.text) is None


@pytest.mark.parametrize("wrong", ["", "x", "\0", "é\udcff", "a" * 100_000])
def test_ten_wrong_codes_void_the_right_one(keys, wrong):
    code = keys.new_code(Right.ALL)

    assert {keys.take(wrong) for _ in range(10)} == {None}

    assert keys.take(code.text) is None


def test_nine_wrong_codes_do_not(keys):
    code = keys.new_code(Right.ALL)

    assert {keys.take("wrong") for _ in range(9)} == {None}

    assert keys.take(code.text) is Right.ALL


def test_a_new_code_can_be_guessed_at_ten_times_again(keys):
    keys.new_code(Right.ALL)
    for _ in range(15):
        keys.take("wrong")

    assert keys.take(keys.new_code(Right.ALL).text) is Right.ALL


def test_another_user_of_the_machine_cannot_use_a_code_that_changes_things(keys):
    code = keys.new_code(Right.ALL)

    with pytest.raises(NotAllowed, match="another user"):
        keys.take(code.text, is_stranger=True)

    assert keys.take(code.text) is Right.ALL


def test_another_user_of_the_machine_may_look(keys):
    assert keys.take(keys.new_code(Right.READ).text, is_stranger=True) is Right.READ


def test_another_users_guesses_void_only_what_they_could_have_used(keys):
    ours, theirs = keys.new_code(Right.ALL), keys.new_code(Right.READ)

    for _ in range(10):
        assert keys.take("wrong", is_stranger=True) is None

    assert keys.take(ours.text) is Right.ALL
    assert keys.take(theirs.text) is None


def test_old_codes_give_way(keys):
    codes = [keys.new_code(Right.ALL).text for _ in range(17)]

    assert keys.take(codes[0]) is None
    assert keys.take(codes[1]) is Right.ALL


def test_there_are_two_tokens_and_each_has_its_right(keys):
    tokens = {right: keys.token(right) for right in Right}

    assert len(set(tokens.values())) == 2
    assert {keys.right_of(token) for token in tokens.values()} == set(Right)


@pytest.mark.parametrize("wrong", ["", "x", "0" * 64, "a" * 100_000, "é\udcff", "\0"])
def test_no_other_token_has_any_right(keys, wrong):
    token = keys.token(Right.ALL)

    assert keys.right_of(wrong) is None
    assert keys.right_of(token[:-1] + ("z" if token.endswith(wrong[:1] or "z") else wrong[:1])) is None
    assert keys.right_of(token + " ") is None


def test_the_token_is_kept_for_its_owner_alone(tmp_path):
    first = Keys(str(tmp_path / "web-token"))

    second = Keys(str(tmp_path / "web-token"))

    assert first.token(Right.ALL) == second.token(Right.ALL)
    assert first.token(Right.READ) == second.token(Right.READ)
    assert stat.S_IMODE(os.stat(tmp_path / "web-token").st_mode) == 0o600
    assert os.listdir(tmp_path) == ["web-token"]
    assert (tmp_path / "web-token").read_text().strip() == first.token(Right.ALL)


@pytest.mark.parametrize("spoilt", ["open", "short", "empty", "a link", "rubbish"])
def test_a_token_that_others_may_know_is_not_used(tmp_path, spoilt):
    path = tmp_path / "web-token"
    token = Keys(str(path)).token(Right.ALL)
    if spoilt == "open":
        path.chmod(0o640)
    elif spoilt == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_bytes({"short": token[:-1].encode(), "empty": b"", "rubbish": b"\xff" * 64}[spoilt])

    keys = Keys(str(path))

    assert keys.right_of(token) is None
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    assert Keys(str(path)).token(Right.ALL) == keys.token(Right.ALL) != token


def test_a_new_token_ends_what_the_old_ones_could(keys):
    old = [keys.token(right) for right in Right]
    code = keys.new_code(Right.ALL)

    keys.renew()

    assert [keys.right_of(token) for token in old] == [None, None]
    assert keys.take(code.text) is None
