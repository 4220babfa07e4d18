"""What `sacct` says about jobs that the controller has forgotten, as the rows of `squeue`."""

from collections.abc import Iterable, Iterator

from dibs.backends.slurm.squeue import SqueueRow

# The name comes last: it may hold the separator.
_FIELDS = ("JobIDRaw", "JobID", "State", "ExitCode", "Submit", "Start", "End", "NodeList", "Comment", "JobName")


def question(numbers: Iterable[str]) -> list[str]:
    """Its options: whole jobs, without their steps."""
    return ["-n", "-P", "-X", "-j", ",".join(numbers), "-o", ",".join(_FIELDS)]


def parse(output: bytes) -> Iterator[SqueueRow]:
    """The rows of an answer: of jobs that are over, as others may be left from a crash of the controller."""
    for line in output.decode("utf-8", "replace").splitlines():
        cells = dict(zip(_FIELDS, line.split("|", len(_FIELDS) - 1), strict=False))
        end = cells.get("End", "")
        if len(cells) < len(_FIELDS) or not cells["JobIDRaw"].isdecimal() or not end.isdecimal():
            continue
        array, _, task = cells["JobID"].partition("_")
        code, _, number = cells["ExitCode"].partition(":")
        yield SqueueRow(
            job=int(cells["JobIDRaw"]),
            array=int(array) if array.isdecimal() else int(cells["JobIDRaw"]),
            task=int(task) if task.isdecimal() else None,
            name=cells["JobName"],
            comment=cells["Comment"],
            state=cells["State"].partition(" ")[0],  # `CANCELLED by 1000`
            status=_number(code) << 8 | _number(number),
            restarts=0,
            submitted=float(_number(cells["Submit"])),
            start=float(_number(cells["Start"])) or None,
            ended=float(end),
            node="" if cells["NodeList"] == "None assigned" else cells["NodeList"],
            reason="",
        )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
