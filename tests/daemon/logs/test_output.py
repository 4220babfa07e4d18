"""What the log route knows about a file whose middle was given back to the disk."""

from dibs.daemon.logs.output import read


def test_what_was_cut_out_of_the_middle_is_named(tmp_path):
    (tmp_path / "stdout").write_bytes(b"head" + bytes(8) + b"tail")
    whole = read(str(tmp_path / "stdout"), 0, 100, None)
    (tmp_path / "stdout.cut").write_text("4 12\n")

    cut = read(str(tmp_path / "stdout"), 0, 100, None)

    assert (str(whole.cut), str(cut.cut)) == ("", "4-12")
