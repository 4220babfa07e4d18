"""Why an attempt failed, as one plain sentence with what to do about it."""

from collections.abc import Mapping

from dibs.model.jobs import Cause

_ADVICE: Mapping[str, str] = {
    Cause.IMPORT_ERROR: "is the environment active where dibs was called?",
    Cause.SYNTAX_ERROR: "the program cannot be read; mend it, then `dibs retry`",
    Cause.PORT_IN_USE: "another process has this port; $MASTER_PORT in a job is a free one",
    Cause.DISK_FULL: "`df -h` shows which disk is full, `df -i` where it has too many files",
    Cause.GPU_OOM: "a smaller batch, or more of the card for it",
    Cause.HOST_OOM: "`--mem` books memory, so that fewer such jobs run at once",
    Cause.GPU_FAULT: "not the job's fault; `dibs gpus` shows the card, `--retry-on gpu-fault` tries another",
}
_NAMES = ("ModuleNotFoundError: ", "ImportError: ", "OSError: ", "IOError: ")  # they say nothing to most people


def advised(cause: str | None, message: str) -> str:
    """What is known about a failure and what helps; empty where nothing is known but how it ended.

    `No module named 'torch': is the environment active where dibs was called?`
    """
    advice = _ADVICE.get(cause or "", "")
    for name in _NAMES if advice else ():
        message = message.removeprefix(name)
    return ": ".join(part for part in (message.rstrip(" .:"), advice) if part) if advice else message
