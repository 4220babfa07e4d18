"""Command lines that mean the same without a shell.

`python train.py --lr 0.1` needs no bash: starting one first costs more than all the rest of a job's start. As in
make, a line of plain words is executed directly. What a shell would look at twice, and every builtin, goes to
the shell; so does a program that cannot be started, for the shell's own words and exit code.

Standard library only.
"""

import re
from collections.abc import Iterable

_PLAIN = re.compile(rb"[A-Za-z0-9_./][A-Za-z0-9_./:,@%+-]*(?:[ \t]+[A-Za-z0-9_./:,@%+=-]+)*[ \t]*")
_SHELLS = frozenset((b"bash", b"/bin/bash", b"/usr/bin/bash", b"sh", b"/bin/sh", b"/usr/bin/sh"))
# `true` and `false` are missing: the programs of these names do just what the builtins do.
_BUILTINS = frozenset(
    b". : alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo"
    b" enable eval exec exit export fc fg getopts hash help history jobs kill let local logout mapfile popd printf"
    b" pushd pwd read readarray readonly return set shift shopt source suspend test times trap type typeset ulimit"
    b" umask unalias unset wait if then else elif fi case esac for select while until do done in function time"
    b" coproc".split()
)


def plain_words(words: list[bytes]) -> list[bytes] | None:
    """The words of `bash -c LINE` that can be executed without bash; None where bash is needed."""
    if len(words) != 3 or words[1] != b"-c" or words[0] not in _SHELLS or not _PLAIN.fullmatch(words[2]):
        return None
    found = words[2].split()
    return None if found[0] in _BUILTINS else found


def shell_is_changed(variables: Iterable[bytes]) -> bool:
    """Whether the environment gives bash files to read or functions to know: then only bash can tell."""
    return any(name.startswith((b"BASH_ENV", b"BASH_FUNC_", b"BASHOPTS", b"SHELLOPTS")) for name in variables)
