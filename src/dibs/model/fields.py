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
    MOUNTS = "mounts"  # `SRC:DST` or `SRC:DST:ro`, absolute
    PATTERNS = "patterns"  # regular expressions
    MODULES = "modules"
    CAUSES = "causes"
    CHECKPOINT = "checkpoint"
    DEPENDENCIES = "dependencies"
    ARRAY = "array"
    ARRAY_LIMIT = "array_limit"  # so many of its tasks at once: a part of `array`
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
    word: str = ""  # in lists and as a keyword in Python; empty: users do not write it
    key: str = ""  # in JSON, with its unit; empty: another row carries it
    flags: tuple[str, ...] = ()  # of the command line
    aliases: tuple[str, ...] = ()  # Slurm's spellings, which are understood and not shown
    negative: str = ""  # the flag of `dibs edit` that takes it back
    metavar: str = ""
    group: str = ""  # the heading in --help; empty: among the other options
    hidden: bool = False  # not in --help
    verbs: frozenset[Verb] = frozenset()
    takes_none: bool = False  # the word `none` takes it back
    of_gpus: bool = False
    in_class: bool = False  # whether it decides which of two jobs starts first
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

    @property
    def slurm_word(self) -> str:
        """What Slurm calls it: `mail-user`."""
        return self.word.replace("_", "-")

    def value_in(self, request: Any) -> Any:
        """What a request has in this field."""
        return getattr(request.wishes if self.of_gpus else request, self.name)


ON_SLURM = "On Slurm"
# Headings of --help, as `sbatch --help` groups its options.
_GPUS, _MACHINE, _TIME, _ORDER = "GPUs", "Other resources", "Time", "Order"
_NAMES, _FAILURES, _PLACE = "Names", "Failures", "Surroundings and output"
_CONTAINER = "Container"
_SWEEP, _SUBMITIT, _HYDRA = frozenset({Verb.SWEEP}), frozenset({Verb.SUBMITIT}), frozenset({Verb.HYDRA})
_PLUGINS = _SUBMITIT | _HYDRA
_ALL = frozenset(Verb)
_QUEUE = _ALL - {Verb.RUN}
_ONE_BY_ONE = _QUEUE - {Verb.SWEEP, Verb.LIST}  # of a single job, not of each of many
_BY_NUMBER = ("cannot ask Slurm for a GPU by its number", "ask for a type (--gpu-type) or a node (--nodelist)")


def _row(name: str, kind: Kind, sentence: str, **columns: Any) -> Field:
    """A row whose word, JSON key and flag are its name, unless it says otherwise."""
    word = columns.pop("word", name)
    flags = columns.pop("flags", (f"--{word.replace('_', '-')}",) if word else ())
    key = columns.pop("key", name)
    return Field(name=name, kind=kind, sentence=sentence, word=word, key=key, flags=flags, **columns)


def _gpus(name: str, kind: Kind, sentence: str, **columns: Any) -> Field:
    """A wish of the GPUs: it decides which of two jobs starts first."""
    return _row(name, kind, sentence, of_gpus=True, in_class=True, **columns)


def _slurm(flag: str, metavar: str = "NAME", sentence: str = "", *, hidden: bool = False) -> Field:
    word, sentence = flag.replace("-", "_"), sentence or f"Slurm's --{flag}."
    columns = {"default": (), "group": ON_SLURM, "verbs": _QUEUE - _PLUGINS, "takes_none": True, "hidden": hidden}
    return _row("on_options", Kind.SYSTEM_OPTION, sentence, word=word, key="", metavar=metavar, **columns)


# A table reads row after row, not value below value.
# fmt: off
FIELDS = (
    _gpus("num_gpus", Kind.COUNT, "How many GPUs each job wants.", group=_GPUS, verbs=_ALL - _SUBMITIT, default=1,
          flags=("-n", "--num-gpus"), metavar="N", most=1024, more="0 is a job without any"),
    _gpus("only", Kind.GPU_IDS, "Use these GPUs only, and wait for them.", verbs=_ALL, default=(), metavar="IDS",
          group=_GPUS,
          takes_none=True, refusal=_BY_NUMBER, not_in_script="it may run on any GPU", phrase="only {}",
          more="`2` or `0,1`"),
    _gpus("prefer", Kind.GPU_IDS, "GPUs to take first when they are free.", verbs=_ALL, default=(), metavar="IDS",
          group=_GPUS,
          takes_none=True, refusal=_BY_NUMBER, not_in_script="it may run on any GPU", phrase="rather {}"),
    _gpus("share", Kind.SHARE, "The part of a GPU each job books: 0.5 or 1/3.", verbs=_ALL, metavar="PART",
          group=_GPUS, takes_none=True, not_in_script="each GPU is asked for as a whole", phrase="{} of each"),
    _gpus("vram", Kind.VRAM, "GPU memory each job books: 12G, or auto for what similar jobs needed.", verbs=_ALL,
          group=_GPUS,
          key="vram_bytes", metavar="SIZE", takes_none=True, not_in_script="each GPU is asked for as a whole",
          phrase="{} on each",
          more="`18G`, `900M`; a bare number is GiB; `auto:18G` is 18G until [more is known](packing.md)"),
    _gpus("shape", Kind.SHAPE, "Whether the GPU memory is what similar jobs needed.", default="", word="",
          key="vram", refusal=("cannot learn on Slurm how much GPU memory jobs need", "say it, as in --vram 12G"),
          not_in_script="each GPU is asked for as a whole"),
    _gpus("gpu_type", Kind.NAME, "A part of the card's name: h200.", verbs=_QUEUE, default="", metavar="NAME",
          group=_GPUS, takes_none=True, phrase="of type {}", more="in any case"),
    _gpus("cpus", Kind.COUNT, "CPUs each job books.", verbs=_QUEUE - _SUBMITIT, metavar="N", takes_none=True,
          group=_MACHINE,
          aliases=("--cpus-per-task",), least=1, most=100_000, phrase="{} CPUs", more="booked, not enforced"),
    _gpus("mem", Kind.SIZE, "Memory of the machine each job books.", verbs=_QUEUE - _SUBMITIT, key="mem_bytes",
          group=_MACHINE,
          metavar="SIZE", takes_none=True, phrase="{} of memory", more="`64G`; booked, not enforced"),
    _row("bind", Kind.FLAG, "Keep each job to the CPUs near its GPUs.", group=_MACHINE, verbs=_ALL, default=False,
         negative="--no-bind",
         refusal=("cannot choose the CPUs of a job on Slurm: Slurm does that", "leave out --bind"),
         not_in_script="Slurm chooses the CPUs", label="bound", phrase="to the CPUs near its GPUs",
         more="[near its cards](sharing.md#cpus-near-the-cards---bind)"),
    _row("warm", Kind.MODULES, "Fork Python jobs from a process that has imported these: torch,numpy.", verbs=_ALL,
         group=_MACHINE, default=(), metavar="MODULES", takes_none=True,
         refusal=("cannot keep a warm process on Slurm", "leave out --warm"), not_in_script="it starts cold",
         label="warm", more="[warm starts](warm.md)"),
    _row("time_limit", Kind.DURATION, "Longest time of a job: 2h, 90s.", verbs=_ALL - _SUBMITIT, word="time",
         group=_TIME,
         key="time_limit_seconds", flags=("-t", "--time"), metavar="TIME", takes_none=True, in_class=True,
         label="time limit",
         more="`45` is minutes, `01:30:00` and `2-12` are read as in Slurm: [time limits](run.md#time-limits)"),
    _row("grace", Kind.DURATION, "Time between TERM and KILL.", verbs=_ALL, default=10.0, key="grace_seconds",
         group=_TIME, metavar="TIME", bare_unit="s", label="grace"),
    _row("priority", Kind.COUNT, "Higher goes first.", verbs=_QUEUE, default=0, metavar="N", least=-999_999,
         group=_ORDER, label="priority"),
    _row("urgent", Kind.FLAG, "Suspend preemptible jobs if no GPU is free.", verbs=_QUEUE, default=False,
         group=_ORDER, negative="--no-urgent", in_class=True,
         refusal=("cannot suspend other jobs on Slurm for an urgent one", "leave out --urgent"),
         not_in_script="it suspends no other job", label="urgent", phrase="yes",
         more="it goes before all jobs that are not urgent"),
    _row("preemptible", Kind.FLAG, "Whether an urgent job may suspend it.", verbs=_QUEUE, default=None,
         group=_ORDER, negative="--no-preemptible",
         refusal=("cannot suspend a job on Slurm for an urgent one", "leave out --preemptible"),
         not_in_script="it is not suspended for urgent jobs", label="preemptible", phrase="yes",
         more="the setting `preemptible` says so for jobs that do not"),
    _row("no_cuda_ipc", Kind.FLAG, "Its processes share no GPU memory by CUDA IPC: several may be suspended.",
         group=_ORDER, verbs=_QUEUE, default=False, negative="--cuda-ipc",
         refusal=("cannot suspend a job on Slurm", "leave out --no-cuda-ipc"),
         not_in_script="it is not suspended", label="CUDA IPC", phrase="none"),
    _row("name", Kind.NAME, "What the jobs are called.", verbs=_QUEUE - _SUBMITIT - _SWEEP, default="",
         group=_NAMES, flags=("-J", "--name"), aliases=("--job-name",), metavar="NAME"),
    _row("project", Kind.NAME, "What they belong to; projects take turns.", group=_NAMES, verbs=_QUEUE, default="",
         flags=("-P", "--project"), metavar="NAME", in_class=True),
    _row("tags", Kind.NAMES, "A word to find them by; may be given again.", group=_NAMES, verbs=_QUEUE, default=(),
         flags=("--tag",), metavar="WORD", takes_none=True, more="in lists `a,b`"),
    _row("after", Kind.DEPENDENCIES, "Start when these have succeeded: 12,13 · @ · a name.", verbs=_ONE_BY_ONE,
         group=_ORDER,
         default=(), metavar="JOBS", takes_none=True, choices=("ok",), not_in_script="it waits for no other job",
         label="after", more="[dependencies](queue.md#dependencies)"),
    _row("after", Kind.DEPENDENCIES, "Start when these are over, however they ended.", verbs=_ONE_BY_ONE - _HYDRA,
         group=_ORDER, default=(), word="after_any", key="", metavar="JOBS", takes_none=True, choices=("any",)),
    _row("after", Kind.DEPENDENCIES, "Start when these have failed.", verbs=_ONE_BY_ONE - _HYDRA, default=(),
         group=_ORDER, word="after_fail", key="", metavar="JOBS", takes_none=True, choices=("fail",)),
    _row("begin", Kind.MOMENT, "Not before: 22:00 · '2026-12-01 08:00' · +2h · tomorrow.", verbs=_ONE_BY_ONE,
         group=_TIME, key="begin_at", metavar="TIME", takes_none=True, label="begins",
         more="[a time to begin](queue.md#a-time-to-begin)"),
    _row("array", Kind.ARRAY, "The command once for each: 1-16 · 1-16%4 (four at once) · 1,3,5-9:2.", group=_ORDER,
         verbs=frozenset({Verb.ADD}), metavar="TASKS", in_class=True, more="[arrays](queue.md#arrays)"),
    _row("array", Kind.ARRAY_LIMIT, "How many tasks of its array run at once.", group=_ORDER,
         verbs=frozenset({Verb.EDIT}), word="array_limit", key="", metavar="N", takes_none=True, least=1,
         most=1_000_000, more="`none`: all of them"),
    _row("retries", Kind.COUNT, "Try a failed job again, with growing pauses.", verbs=_ALL, default=0, metavar="N",
         group=_FAILURES, not_in_script="it is not tried again", label="retries",
         more="[retries and causes](queue.md#retries-and-causes)"),
    _row("retry_on", Kind.CAUSES, "Try again only after these: gpu-oom,lost,exit-code.", verbs=_QUEUE, default=(),
         group=_FAILURES, metavar="CAUSES", takes_none=True, label="retry on"),
    _row("restartable", Kind.FLAG, "May run again when its end was not seen, as after a power cut.", verbs=_QUEUE,
         group=_FAILURES,
         default=False, negative="--no-restartable", aliases=("--requeue",),
         not_in_script="it is not tried again", label="restartable",
         phrase="yes"),
    _row("checkpoint", Kind.CHECKPOINT, "USR1@60: a signal before the time limit, then queue it again.",
         group=_FAILURES,
         verbs=_ONE_BY_ONE - _PLUGINS, word="checkpoint_signal", metavar="SIG@SECONDS", takes_none=True,
         aliases=("--signal",),
         not_in_script="it is not queued again after the signal before its time limit", label="checkpoint",
         more="[checkpoints](queue.md#checkpoints)"),
    _row("hold", Kind.FLAG, "Wait until `dibs release`.", verbs=_ONE_BY_ONE - _HYDRA, group=_ORDER, default=False,
         negative="--no-hold"),
    _row("once", Kind.KEY, "No second job is added with this key.", verbs=_ONE_BY_ONE - _PLUGINS, group=_NAMES,
         default="", metavar="KEY", takes_none=True),
    _row("env", Kind.VARIABLES, "A variable for the jobs; may be given again.", verbs=_ALL - _SUBMITIT,
         group=_PLACE, default=(), metavar="K=V", takes_none=True, is_secret=True, label="sets",
         more="on top of yours; not in `[...]`"),
    _row("workdir", Kind.FOLDER, "Run the jobs in this folder.", group=_PLACE, verbs=_ALL - _PLUGINS, default="",
         flags=("-C", "--workdir"), aliases=("--chdir",), metavar="DIR"),
    _row("output", Kind.FILE, "Their output goes here; %j is the number, %a the task.", group=_PLACE,
         verbs=_ONE_BY_ONE - _PLUGINS, default="", flags=("-o",), aliases=("--output",), metavar="FILE"),
    _row("error", Kind.FILE, "Their stderr goes here, apart from the rest of the output.", group=_PLACE,
         verbs=_ONE_BY_ONE - _PLUGINS, default="", metavar="FILE"),
    _row("image", Kind.KEY, "Run the jobs in a container of this image.", verbs=_ALL - _PLUGINS, default="",
         group=_CONTAINER, metavar="NAME", takes_none=True, not_in_script="it runs outside of its container",
         label="image", more="[containers](containers.md)"),
    _row("container_engine", Kind.CHOICE, "What runs it (default: the setting container_engine).",
         group=_CONTAINER, verbs=_ALL - _PLUGINS, default="", takes_none=True,
         choices=("podman", "docker", "apptainer", "runc"), label="container engine"),
    _row("mounts", Kind.MOUNTS, "A folder for it, SRC[:DST][:ro]; may be given again.",
         group=_CONTAINER, verbs=_ALL - _PLUGINS, default=(), flags=("--mount",), metavar="SRC", takes_none=True,
         not_in_script="it runs outside of its container", label="mounts",
         more="the working folder is mounted without it"),
    _row("image_pull", Kind.CHOICE, "When the image is pulled (default: missing).",
         group=_CONTAINER, verbs=_ALL - _PLUGINS, default="", takes_none=True,
         choices=("never", "missing", "always"), more="before a GPU is taken",
         refusal=("cannot pull an image ahead of a job on Slurm", "leave out --image-pull"),
         not_in_script="the image is pulled when it starts", label="image pull"),
    _row("notify", Kind.CHOICE, "Notify you at its end, only at a failure, or never.", verbs=_ONE_BY_ONE,
         group=_PLACE, default="", takes_none=True, choices=("end", "failure", "never"), label="notify",
         more="[notifications](queue.md#notifications)"),
    _row("metric_patterns", Kind.PATTERNS, "Find metrics in their output: 'loss=(?P<loss>\\S+)', or auto.",
         group=_PLACE, verbs=_ALL - _PLUGINS, default=(), word="metric_pattern", metavar="REGEX",
         takes_none=True, not_in_script="its metrics are not read from its output", label="metrics in",
         more="may be given again: [metrics out of a log](metrics.md#out-of-a-log)"),
    _row("on", Kind.PLACE, "Run here, or on Slurm (default: the setting default_backend).",
         verbs=_QUEUE - _PLUGINS, default="", group=ON_SLURM, in_class=True, choices=("local", "slurm"),
         more="[where they run](slurm.md)"),
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
    _row("on_options", Kind.SYSTEM_OPTIONS, "What the other system is told, by its own words.", default=(),
         word=""),
    _row("umask", Kind.MODE, "The umask of the shell that added it.", word="", most=0o777),
    _row("command", Kind.COMMAND, "A line for the shell, or a list of words that no shell touches.",
         verbs=frozenset({Verb.LIST}), flags=(), more="not in `[...]`"),
)
# fmt: on

BESIDE_COMMAND = tuple(field for field in FIELDS if field.kind is not Kind.COMMAND)
BY_WORD = {field.word: field for field in FIELDS if field.word}
BY_KEY = {field.key: field for field in BESIDE_COMMAND if field.key}
OF_COMMAND = ("command", "words", "shell")  # the keys by which JSON says what is executed
KEYS = (*OF_COMMAND, *BY_KEY)


def fields_of(verb: Verb) -> tuple[Field, ...]:
    """The fields that this verb may set, in the order of the table."""
    return tuple(field for field in FIELDS if verb in field.verbs)
