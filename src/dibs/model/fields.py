"""The table of a job's fields. A field is declared here and nowhere else; everything else is derived from its row.

From it come the words and keys of job lists, the options of `dibs run`, `add`, `sweep` and `edit`, the models of
the API, the store's codec, Python's keywords, the parameters of the plugins, `dibs info`, export and import, and
the reference page. It holds values and imports the standard library only: `dibs add` pays for it at each start.
"""

from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """How a field is read, written and described; each room has its functions for a kind, not for a field."""

    COUNT = "count"  # a whole number from `least` to `most`
    SIZE = "size"  # bytes
    VRAM = "vram"  # bytes, `auto`, or both
    SHAPE = "shape"  # `auto` in JSON; the shape of the command once it is known
    SHARE = "share"  # a part of a card
    GPU_IDS = "gpu_ids"
    NAME = "name"  # text up to 255 characters
    NAMES = "names"
    KEY = "key"  # a name that is not empty where it is given
    FLAG = "flag"
    DURATION = "duration"  # seconds
    MOMENT = "moment"  # seconds since the epoch
    FOLDER = "folder"
    FILE = "file"
    VARIABLES = "variables"
    MODULES = "modules"
    CAUSES = "causes"
    CHECKPOINT = "checkpoint"
    DEPENDENCIES = "dependencies"
    ARRAY = "array"
    CHOICE = "choice"  # one of `choices`
    PLACE = "place"  # where it runs
    SYSTEM_OPTION = "system_option"  # passed on to the system that runs it, by that system's word
    SYSTEM_OPTIONS = "system_options"  # all of them
    MODE = "mode"  # bits of a file's mode
    COMMAND = "command"


class Verb(StrEnum):
    """What may set a field."""

    RUN = "run"
    ADD = "add"
    SWEEP = "sweep"
    EDIT = "edit"
    LIST = "list"  # a line of a job list: JSON, and `[...]` where one word says it all
    PYTHON = "python"
    SUBMITIT = "submitit"
    HYDRA = "hydra"


class Field(NamedTuple):  # a dataclass of so many columns costs `dibs add` two milliseconds
    """One field of a job: a row of the table."""

    name: str  # the attribute of `Request`, or of `Wishes` where `of_gpus`; also its key in the store
    kind: Kind
    sentence: str  # what it does, for --help and the reference
    default: object = None
    word: str = ""  # in lists and as a keyword in Python; empty: people do not write it
    key: str = ""  # in JSON, with its unit; empty: another row carries it
    flags: tuple[str, ...] = ()  # of the command line
    negative: str = ""  # the flag of `dibs edit` that takes it back
    metavar: str = ""
    group: str = ""  # the heading in --help; empty: among the other options
    hidden: bool = False  # not in --help
    verbs: frozenset[Verb] = frozenset()
    is_fixed: bool = False  # said when the job is added; all others may be changed until it starts
    takes_none: bool = False  # the word `none` takes it back
    of_gpus: bool = False
    in_class: bool = False  # whether jobs that differ in it may differ in who starts first
    is_secret: bool = False  # whether it may hold passwords
    least: int = 0
    most: int = 999_999
    choices: tuple[str, ...] = ()
    bare_unit: str = ""  # of a number that is not text; empty: as in text
    refusal: tuple[str, str] = ("", "")  # of Slurm: why it does not take it, and what to do instead
    not_in_script: str = ""  # what a script that was exported with --sbatch does not do
    label: str = ""  # in `dibs info`; empty: it is part of another line
    phrase: str = "{}"  # its value in `dibs info`
    more: str = ""  # Markdown behind the sentence in the reference

    @property
    def on_slurm(self) -> bool:
        return not self.refusal[0]

    def value_in(self, request: Any) -> Any:
        """What a request has in this field."""
        return getattr(request.wishes if self.of_gpus else request, self.name)


ON_SLURM = "On Slurm"  # a heading
_V = Verb
_QUEUE = frozenset({_V.ADD, _V.SWEEP, _V.EDIT, _V.LIST, _V.PYTHON, _V.SUBMITIT, _V.HYDRA})
_ALL = _QUEUE | {_V.RUN}
_NAMED_BY_SUBMITIT = frozenset({_V.SUBMITIT})  # it has a parameter of its own for this
_ONE_BY_ONE = _QUEUE - {_V.SWEEP, _V.LIST}  # of a single job, not of each of many
_BY_NUMBER = "ask for a type (--gpu-type) or a node (--nodelist)"


def _slurm(word: str, metavar: str = "NAME", sentence: str = "", *, hidden: bool = False) -> Field:
    return Field(
        name="on_options",
        kind=Kind.SYSTEM_OPTION,
        sentence=sentence or f"Slurm's --{word}.",
        default=(),
        word=word.replace("-", "_"),
        flags=(f"--{word}",),
        metavar=metavar,
        group=ON_SLURM,
        hidden=hidden,
        verbs=_QUEUE - {_V.SUBMITIT, _V.HYDRA},
        takes_none=True,
    )


FIELDS = (
    Field(
        name="num_gpus",
        kind=Kind.COUNT,
        sentence="How many GPUs each job wants.",
        default=1,
        word="num_gpus",
        key="num_gpus",
        flags=("-n", "--num-gpus"),
        metavar="N",
        verbs=_ALL - _NAMED_BY_SUBMITIT,
        most=1024,
        of_gpus=True,
        in_class=True,
        more="0 is a job without any",
    ),
    Field(
        name="only",
        kind=Kind.GPU_IDS,
        sentence="Use these GPUs only, and wait for them.",
        default=(),
        word="only",
        key="only",
        flags=("--only",),
        metavar="IDS",
        verbs=_ALL,
        takes_none=True,
        of_gpus=True,
        in_class=True,
        refusal=("cannot ask Slurm for a GPU by its number", _BY_NUMBER),
        not_in_script="it may run on any GPU",
        phrase="only {}",
        more="`2` or `0,1`",
    ),
    Field(
        name="prefer",
        kind=Kind.GPU_IDS,
        sentence="GPUs to take first when they are free.",
        default=(),
        word="prefer",
        key="prefer",
        flags=("--prefer",),
        metavar="IDS",
        verbs=_ALL,
        takes_none=True,
        of_gpus=True,
        in_class=True,
        refusal=("cannot ask Slurm for a GPU by its number", _BY_NUMBER),
        not_in_script="it may run on any GPU",
        phrase="rather {}",
    ),
    Field(
        name="share",
        kind=Kind.SHARE,
        sentence="The part of a GPU each job books: 0.5 or 1/3.",
        word="share",
        key="share",
        flags=("--share",),
        metavar="PART",
        verbs=_ALL,
        takes_none=True,
        of_gpus=True,
        in_class=True,
        not_in_script="each GPU is asked for as a whole",
        phrase="{} of each",
    ),
    Field(
        name="vram",
        kind=Kind.VRAM,
        sentence="GPU memory each job books: 12G, or auto for what similar jobs needed.",
        word="vram",
        key="vram_bytes",
        flags=("--vram",),
        metavar="SIZE",
        verbs=_ALL,
        takes_none=True,
        of_gpus=True,
        in_class=True,
        not_in_script="each GPU is asked for as a whole",
        phrase="{} on each",
        more="`18G`, `900M`; a bare number is GiB; `auto:18G` is 18G until more is known: [packing](packing.md)",
    ),
    Field(
        name="shape",
        kind=Kind.SHAPE,
        sentence="Whether the GPU memory is what similar jobs needed.",
        default="",
        key="vram",
        of_gpus=True,
        in_class=True,
        refusal=("cannot learn on Slurm how much GPU memory jobs need", "say it, as in --vram 12G"),
        not_in_script="each GPU is asked for as a whole",
    ),
    Field(
        name="gpu_type",
        kind=Kind.NAME,
        sentence="A part of the card's name: h200.",
        default="",
        word="gpu_type",
        key="gpu_type",
        flags=("--gpu-type",),
        metavar="NAME",
        verbs=_QUEUE,
        takes_none=True,
        of_gpus=True,
        in_class=True,
        phrase="of type {}",
        more="in any case",
    ),
    Field(
        name="cpus",
        kind=Kind.COUNT,
        sentence="CPUs each job books.",
        word="cpus",
        key="cpus",
        flags=("--cpus",),
        metavar="N",
        verbs=_QUEUE - _NAMED_BY_SUBMITIT,
        takes_none=True,
        least=1,
        most=100_000,
        of_gpus=True,
        in_class=True,
        phrase="{} CPUs",
        more="booked, not enforced",
    ),
    Field(
        name="mem",
        kind=Kind.SIZE,
        sentence="Memory of the machine each job books.",
        word="mem",
        key="mem_bytes",
        flags=("--mem",),
        metavar="SIZE",
        verbs=_QUEUE - _NAMED_BY_SUBMITIT,
        takes_none=True,
        of_gpus=True,
        in_class=True,
        phrase="{} of memory",
        more="`64G`; booked, not enforced",
    ),
    Field(
        name="bind",
        kind=Kind.FLAG,
        sentence="Keep each job to the CPUs near its GPUs.",
        default=False,
        word="bind",
        key="bind",
        flags=("--bind",),
        negative="--no-bind",
        verbs=_ALL,
        refusal=("cannot choose the CPUs of a job on Slurm: Slurm does that", "leave out --bind"),
        not_in_script="Slurm chooses the CPUs",
        label="bound",
        phrase="to the CPUs near its GPUs",
        more="[near its cards](sharing.md#cpus-near-the-cards---bind)",
    ),
    Field(
        name="warm",
        kind=Kind.MODULES,
        sentence="Fork Python jobs from a process that has imported these: torch,numpy.",
        default=(),
        word="warm",
        key="warm",
        flags=("--warm",),
        metavar="MODULES",
        verbs=_ALL,
        takes_none=True,
        refusal=("cannot keep a warm process on Slurm", "leave out --warm"),
        not_in_script="it starts cold",
        label="warm",
        more="[warm starts](warm.md)",
    ),
    Field(
        name="time_limit",
        kind=Kind.DURATION,
        sentence="Longest time of a job: 2h, 90s.",
        word="time",
        key="time_limit_seconds",
        flags=("-t", "--time"),
        metavar="TIME",
        verbs=_ALL - _NAMED_BY_SUBMITIT,
        takes_none=True,
        in_class=True,
        label="time limit",
        more="`45` is minutes, `01:30:00` and `2-12` are read as in Slurm: [time limits](run.md#time-limits)",
    ),
    Field(
        name="grace",
        kind=Kind.DURATION,
        sentence="Time between TERM and KILL.",
        default=10.0,
        word="grace",
        key="grace_seconds",
        flags=("--grace",),
        metavar="TIME",
        verbs=_ALL,
        bare_unit="s",
        label="grace",
    ),
    Field(
        name="priority",
        kind=Kind.COUNT,
        sentence="Higher goes first.",
        default=0,
        word="priority",
        key="priority",
        flags=("--priority",),
        metavar="N",
        verbs=_QUEUE,
        least=-999_999,
        label="priority",
    ),
    Field(
        name="name",
        kind=Kind.NAME,
        sentence="What the jobs are called.",
        default="",
        word="name",
        key="name",
        flags=("-J", "--name"),
        metavar="NAME",
        verbs=_QUEUE - _NAMED_BY_SUBMITIT - {_V.SWEEP},  # there it is the name of the sweep
    ),
    Field(
        name="project",
        kind=Kind.NAME,
        sentence="What they belong to; projects take turns.",
        default="",
        word="project",
        key="project",
        flags=("-P", "--project"),
        metavar="NAME",
        verbs=_QUEUE,
        in_class=True,
    ),
    Field(
        name="tags",
        kind=Kind.NAMES,
        sentence="A word to find them by; may be given again.",
        default=(),
        word="tags",
        key="tags",
        flags=("--tag",),
        metavar="WORD",
        verbs=_QUEUE,
        takes_none=True,
        more="in lists `a,b`",
    ),
    Field(
        name="after",
        kind=Kind.DEPENDENCIES,
        sentence="Start when these have succeeded: 12,13 · @ · a name.",
        default=(),
        word="after",
        key="after",
        flags=("--after",),
        metavar="JOBS",
        verbs=_ONE_BY_ONE,
        takes_none=True,
        choices=("ok",),
        label="after",
        not_in_script="it waits for no other job",
        more="[dependencies](queue.md#dependencies)",
    ),
    Field(
        name="after",
        kind=Kind.DEPENDENCIES,
        sentence="Start when these are over, however they ended.",
        default=(),
        word="after_any",
        flags=("--after-any",),
        metavar="JOBS",
        verbs=_ONE_BY_ONE - {_V.HYDRA},
        takes_none=True,
        choices=("any",),
    ),
    Field(
        name="after",
        kind=Kind.DEPENDENCIES,
        sentence="Start when these have failed.",
        default=(),
        word="after_fail",
        flags=("--after-fail",),
        metavar="JOBS",
        verbs=_ONE_BY_ONE - {_V.HYDRA},
        takes_none=True,
        choices=("fail",),
    ),
    Field(
        name="begin",
        kind=Kind.MOMENT,
        sentence="Not before: 22:00 · '2026-12-01 08:00' · +2h · tomorrow.",
        word="begin",
        key="begin_at",
        flags=("--begin",),
        metavar="TIME",
        verbs=_ONE_BY_ONE,
        takes_none=True,
        label="begins",
        more="[a time to begin](queue.md#a-time-to-begin)",
    ),
    Field(
        name="array",
        kind=Kind.ARRAY,
        sentence="The command once for each: 1-16 · 1-16%4 (four at once) · 1,3,5-9:2.",
        word="array",
        key="array",
        flags=("--array",),
        metavar="TASKS",
        verbs=frozenset({_V.ADD}),
        is_fixed=True,
        in_class=True,
        more="[arrays](queue.md#arrays)",
    ),
    Field(
        name="retries",
        kind=Kind.COUNT,
        sentence="Try a failed job again, with growing pauses.",
        default=0,
        word="retries",
        key="retries",
        flags=("--retries",),
        metavar="N",
        verbs=_ALL,
        label="retries",
        not_in_script="it is not tried again",
        more="[retries and causes](queue.md#retries-and-causes)",
    ),
    Field(
        name="retry_on",
        kind=Kind.CAUSES,
        sentence="Try again only after these: gpu-oom,lost,exit-code.",
        default=(),
        word="retry_on",
        key="retry_on",
        flags=("--retry-on",),
        metavar="CAUSES",
        verbs=_QUEUE,
        takes_none=True,
        label="retry on",
    ),
    Field(
        name="restartable",
        kind=Kind.FLAG,
        sentence="May run again when its end was not seen, as after a power cut.",
        default=False,
        word="restartable",
        key="restartable",
        flags=("--restartable",),
        negative="--no-restartable",
        verbs=_QUEUE,
        label="restartable",
        phrase="yes",
        not_in_script="it is not tried again",
    ),
    Field(
        name="checkpoint",
        kind=Kind.CHECKPOINT,
        sentence="USR1@60: a signal before the time limit, then queue it again.",
        word="checkpoint_signal",
        key="checkpoint",
        flags=("--checkpoint-signal",),
        metavar="SIG@SECONDS",
        verbs=frozenset({_V.ADD, _V.EDIT, _V.PYTHON}),
        takes_none=True,
        label="checkpoint",
        not_in_script="it is not queued again after the signal before its time limit",
        more="[checkpoints](queue.md#checkpoints)",
    ),
    Field(
        name="hold",
        kind=Kind.FLAG,
        sentence="Wait until `dibs release`.",
        default=False,
        word="hold",
        key="hold",
        flags=("--hold",),
        verbs=frozenset({_V.ADD, _V.PYTHON, _V.SUBMITIT}),
        is_fixed=True,
    ),
    Field(
        name="once",
        kind=Kind.KEY,
        sentence="Add it only if no job has this key yet.",
        default="",
        word="once",
        key="once",
        flags=("--once",),
        metavar="KEY",
        verbs=frozenset({_V.ADD, _V.PYTHON}),
        is_fixed=True,
    ),
    Field(
        name="env",
        kind=Kind.VARIABLES,
        sentence="A variable for the jobs; may be given again.",
        default=(),
        word="env",
        key="env",
        flags=("--env",),
        metavar="K=V",
        verbs=_QUEUE - _NAMED_BY_SUBMITIT,
        takes_none=True,
        is_secret=True,
        label="sets",
        more="on top of yours; not in `[...]`",
    ),
    Field(
        name="workdir",
        kind=Kind.FOLDER,
        sentence="Run the jobs in this folder.",
        default="",
        word="workdir",
        key="workdir",
        flags=("-C", "--workdir"),
        metavar="DIR",
        verbs=_ALL - {_V.SUBMITIT, _V.HYDRA},
    ),
    Field(
        name="output",
        kind=Kind.FILE,
        sentence="Their output goes here; %j is the number, %a the task.",
        default="",
        word="output",
        key="output",
        flags=("-o",),
        metavar="FILE",
        verbs=frozenset({_V.ADD, _V.EDIT, _V.PYTHON}),
    ),
    Field(
        name="notify",
        kind=Kind.CHOICE,
        sentence="Notify you at its end, only at a failure, or never.",
        default="",
        word="notify",
        key="notify",
        flags=("--notify",),
        verbs=_ONE_BY_ONE,
        takes_none=True,
        choices=("end", "failure", "never"),
        label="notify",
        more="[being told](queue.md#being-told)",
    ),
    Field(
        name="on",
        kind=Kind.PLACE,
        sentence="Run here, or on Slurm (default: the setting default_backend).",
        default="",
        word="on",
        key="on",
        flags=("--on",),
        group=ON_SLURM,
        verbs=_QUEUE - {_V.SUBMITIT, _V.HYDRA},
        choices=("local", "slurm"),
        in_class=True,
        more="[where they run](slurm.md)",
    ),
    _slurm("partition", sentence="The partition it waits in."),
    _slurm("account", sentence="The account that is charged."),
    _slurm("qos", sentence="The quality of service."),
    _slurm("constraint", "LIST", sentence="What its node must have."),
    _slurm("reservation", hidden=True),
    _slurm("exclude", "LIST", hidden=True),
    _slurm("nodelist", "LIST", hidden=True),
    _slurm("licenses", "LIST", hidden=True),
    _slurm("mail-user", hidden=True),
    _slurm("mail-type", hidden=True),
    Field(
        name="on_options",
        kind=Kind.SYSTEM_OPTIONS,
        sentence="What the other system is told, by its own words.",
        default=(),
        key="on_options",
    ),
    Field(
        name="umask",
        kind=Kind.MODE,
        sentence="The umask of the shell that added it.",
        key="umask",
        most=0o777,
    ),
    Field(
        name="command",
        kind=Kind.COMMAND,
        sentence="A line for the shell, or a list of words that no shell touches.",
        word="command",
        key="command",
        verbs=frozenset({_V.LIST}),
        more="not in `[...]`",
    ),
)

BESIDE_COMMAND = tuple(field for field in FIELDS if field.kind is not Kind.COMMAND)
BY_WORD = {field.word: field for field in FIELDS if field.word}
BY_KEY = {field.key: field for field in BESIDE_COMMAND if field.key}
OF_COMMAND = ("command", "words", "shell")  # the keys by which JSON says what is executed
KEYS = (*OF_COMMAND, *BY_KEY)


def fields_of(verb: Verb) -> tuple[Field, ...]:
    """The fields that this verb may set, in the order of the table."""
    return tuple(field for field in FIELDS if verb in field.verbs)
