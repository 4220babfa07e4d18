"""The record: what was written whole is read exactly, everything else is none."""

from hypothesis import given
from hypothesis import strategies as st

from dibs.supervise.folder import RECORD_SIZE, blank_record, decode_record, encode_record, is_blank_record

texts = st.text(max_size=2000) | st.text(st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF), max_size=50)
written = st.fixed_dictionaries(
    {
        "v": st.just(1),
        "state": st.sampled_from(["starting", "running", "ended"]),
        "shim": st.integers(1, 2**22),
        "message": texts,
        "code": st.none() | st.integers(0, 255),
        "signal": st.none() | st.integers(1, 64),
        "ended": st.floats(0, 2**40),
    }
)


@given(written)
def test_decode_undoes_encode_except_for_the_beginning_of_a_long_message(record: dict[str, object]) -> None:
    content = encode_record(record)

    found = decode_record(content)

    assert len(content) == RECORD_SIZE
    assert found is not None
    assert str(record["message"]).endswith(str(found.pop("message")))
    assert found == {key: value for key, value in record.items() if key != "message"}


@given(written, st.integers(0, RECORD_SIZE))
def test_a_torn_record_is_none(record: dict[str, object], length: int) -> None:
    """A write that stopped in the middle over an older record, or over zeros."""
    content = encode_record(record)
    body = len(content.rstrip(b" \n"))

    for before in (bytes(RECORD_SIZE), encode_record({"v": 1, "state": "starting", "shim": 7, "message": ""})):
        torn = content[:length] + before[length:]
        found = decode_record(torn)
        assert found in (None, decode_record(content), decode_record(before))
        assert found == decode_record(content) or length < body


@given(written, st.integers(0, RECORD_SIZE - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(record: dict[str, object], place: int, change: int) -> None:
    content = bytearray(encode_record(record))
    content[place] ^= change

    found = decode_record(bytes(content))

    assert found in (None, decode_record(encode_record(record)))


@given(st.binary(max_size=2 * RECORD_SIZE))
def test_any_bytes_are_a_record_or_none(content: bytes) -> None:
    found = decode_record(content)

    assert found is None or isinstance(found, dict)


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=500), max_size=5))
def test_a_blank_record_carries_its_spec_and_is_no_record(spec: dict[str, str]) -> None:
    content = blank_record(spec)

    assert is_blank_record(content)
    assert decode_record(content) is None


def test_zeros_and_what_is_left_of_a_blank_record_are_not_blank() -> None:
    content = blank_record({"job": 1, "attempt": 2, "opened_at": 3.5})

    damaged = [b"", bytes(RECORD_SIZE), content[: RECORD_SIZE // 64], content[:30] + bytes(RECORD_SIZE - 30)]

    assert not any(is_blank_record(one) for one in damaged)
