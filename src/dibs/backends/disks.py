"""What a disk says that will not do as it is asked, in words and with what helps."""

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SHUT = (errno.EROFS, errno.EACCES, errno.EPERM)


def cannot_write(error: OSError, path: str, setting: str) -> str:
    """`cannot write to /shared/q1: no space left on device; make room there, or set ... to another folder`.

    `setting` is the one that says where such files go; empty: there is none.
    """
    if error.errno in _FULL:
        remedy = "make room there"
    elif error.errno in _SHUT:
        remedy = "make it writable"
    else:
        remedy = "bring it back"
    elsewhere = f", or set {setting} to another folder" if setting else ""
    return f"cannot write to {path}: {said(error)}; {remedy}{elsewhere}"


def said(error: OSError) -> str:
    """`not a directory`: the system's words, as they stand in the middle of a sentence."""
    if not error.strerror:
        return str(error)  # our own words
    return f"{error.strerror[0].lower()}{error.strerror[1:]}"
