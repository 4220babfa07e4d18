"""A request that has a wish in every field, so that a new row of the table is in every test of a round trip."""

from fractions import Fraction
from typing import Any

from dibs.model.fields import BY_KEY, Field, Kind
from dibs.model.jobs import After, ArrayTask, Checkpoint, Command, Dependency, JobId, Request, with_values

_SAMPLES: dict[Kind, Any] = {
    Kind.SIZE: 4096,
    Kind.VRAM: 1024,
    Kind.SHAPE: "auto",
    Kind.SHARE: Fraction(1, 2),
    Kind.GPU_IDS: ("0",),
    Kind.NAME: "",
    Kind.NAMES: ("a", "b"),
    Kind.KEY: "k",
    Kind.FLAG: True,
    Kind.DURATION: 3600.0,
    Kind.MOMENT: 2208988800.0,
    Kind.FOLDER: "/tmp",
    Kind.FILE: "/tmp/o-%j",
    Kind.MOUNTS: ("/data:/data", "/tmp:/scratch:ro"),
    Kind.PATTERNS: ("auto", r"loss=(?P<loss>\S+)"),
    Kind.VARIABLES: (("A", "1"), ("B", "\udcff")),
    Kind.MODULES: ("json", "email.mime"),
    Kind.CAUSES: ("lost", "gpu-oom"),
    Kind.CHECKPOINT: Checkpoint(10, 60.0),
    Kind.DEPENDENCIES: (Dependency(JobId(1), After.ANY),),
    Kind.ARRAY: ArrayTask(JobId(0), 4, 2),
    Kind.PLACE: "slurm",
    Kind.SYSTEM_OPTIONS: (("partition", "gpu"), ("mail-user", "ann@example.org")),
    Kind.MODE: 0o27,
}


def sample(field: Field) -> Any:
    """A value that is not the default."""
    if field.kind is Kind.COUNT:
        return 1 if field.default is None else 2 if field.name != "num_gpus" else 0
    if field.kind is Kind.NAME:
        return f"a {field.word}"
    return field.choices[-1] if field.kind is Kind.CHOICE else _SAMPLES[field.kind]


def everything() -> Request:
    values = {field.name: sample(field) for field in BY_KEY.values()}
    return with_values(Request(command=Command.line("echo all")), values)
