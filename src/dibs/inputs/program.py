"""What would run: the files of a program, its interpreter and its environment, as one key.

Results are reused only where this key is the same. It errs on the side of running again: an edited comment is
another program. Data that a program reads by a path of its own is not part of it.
"""

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence

_MOST_FILES = 5_000
_MOST_BYTES = 64 * 1024**2  # of all files that are read
_LARGE = 4 * 1024**2  # bytes: of a larger file, such as data, only size and time are looked at
_SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules", "site-packages", "build", "dist", "wandb", "mlruns"))
# What changes with every login or every terminal, and not with what a program computes.
VOLATILE = frozenset(
    (
        *("_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "TERM", "COLORTERM", "LS_COLORS", "MAIL", "WINDOWID"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "KRB5CCNAME", "STY", "WINDOW"),
        *("INVOCATION_ID", "JOURNAL_STREAM", "MANAGERPID", "SYSTEMD_EXEC_PID", "DEBUGINFOD_URLS"),
        *("EDITOR", "VISUAL", "PAGER", "BROWSER", "HISTFILE", "HISTSIZE", "HISTCONTROL", "HISTFILESIZE"),
        *("PS1", "PS2", "PS4"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    )
)
VOLATILE_FAMILIES = (
    *("SSH_", "TMUX", "TERM_", "XDG_", "VSCODE_", "VTE_", "GNOME_", "KITTY_", "ITERM_", "KONSOLE_", "GPG_"),
    *("PROMPT_", "LESS", "DIBS_"),
)


def program_key(command: str | Sequence[str], folder: str, environ: Mapping[str, str]) -> str:
    """A hash of what such a command runs in a folder; empty where there are too many files to tell."""
    words = _words(command)
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, sorted((name, value) for name, value in environ.items() if not is_volatile(name)))
    for path in _programs(words, folder, environ):
        _add(digest, [path, _stamp(path), *(_stamp(place) for place in _packages(path))])
    budget = _MOST_BYTES
    for number, path in enumerate(_files(words, folder)):
        size = os.path.getsize(path) if os.path.exists(path) else 0
        budget -= size if size <= _LARGE else 0
        if number >= _MOST_FILES or budget < 0:
            return ""
        _add(digest, [os.path.relpath(path, folder), _content(path, size)])
    return digest.hexdigest()


def is_volatile(name: str) -> bool:
    """Whether a variable changes from login to login, and so says nothing about results."""
    return name in VOLATILE or name.startswith(VOLATILE_FAMILIES)


def _words(command: str | Sequence[str]) -> list[str]:
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError:  # the shell will say it
        return command.split()


def _programs(words: Sequence[str], folder: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The paths under which its commands are found; not what they link to: that is the same for every venv."""
    for word in dict.fromkeys(words):
        is_command = word and not word.startswith("-") and "=" not in word and "{" not in word
        if is_command and (found := shutil.which(word, path=environ.get("PATH"))):
            yield os.path.normpath(os.path.join(folder, found))


def _packages(program: str) -> Iterator[str]:
    """The folders that change when a package is installed into the environment of an interpreter."""
    libraries = os.path.join(os.path.dirname(os.path.dirname(program)), "lib")
    if os.path.basename(program).startswith("python") and os.path.isdir(libraries):
        for name in sorted(os.listdir(libraries)):
            if name.startswith("python"):
                yield os.path.join(libraries, name, "site-packages")


def _files(words: Sequence[str], folder: str) -> Iterator[str]:
    """The files that its words name, and the modules below the folders of its scripts."""
    named = [os.path.normpath(os.path.join(folder, word)) for word in words if word and "\0" not in word]
    files = [path for path in dict.fromkeys(named) if os.path.isfile(path)]
    yield from files
    roots = [os.path.dirname(path) for path in files if path.endswith((".py", ".sh"))]
    if "-m" in words:
        roots.append(os.path.normpath(folder))
    seen = set(files)
    for root in dict.fromkeys(roots):
        for place, folders, names in os.walk(root):
            is_environment = "pyvenv.cfg" in names
            folders[:] = sorted(
                name
                for name in folders
                if not is_environment and not name.startswith(".") and name not in _SKIPPED_FOLDERS
            )
            for name in [] if is_environment else sorted(names):
                path = os.path.join(place, name)
                if name.endswith(".py") and path not in seen:
                    seen.add(path)
                    yield path


def _content(path: str, size: int) -> object:
    if size > _LARGE:
        return _stamp(path)
    try:
        with open(path, "rb") as file:
            return hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    except OSError as error:
        return str(error.strerror)


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _add(digest: hashlib.blake2b, value: object) -> None:
    digest.update(json.dumps(value).encode("utf-8", "surrogateescape") + b"\n")
