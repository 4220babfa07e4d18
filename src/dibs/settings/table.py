"""The table of all settings: how each is called, what it is by default, and what it does."""

from collections.abc import Callable
from typing import Any

from dibs.dataclass import dataclass
from dibs.settings import values


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What can be set once for all commands. Every field is a row of TABLE."""

    gpus: str = "auto"
    gpu_order: str = "emptiest"
    min_free: int = 0
    respect_graphics: bool = False
    ignore_memory: int = 0  # bytes
    reading_seconds: float = 1.0
    retention: float | None = None  # seconds; None: for ever
    max_quick_failures: int = 5
    quick_seconds: float = 10.0
    gpu_failures: int = 3
    canary: str = "auto"
    canary_after: float = 600.0  # seconds
    log_limit: int = 1024**3  # bytes
    keep_logs: int | None = None  # bytes; None: all
    notify_command: str = ""
    notify_webhook: str = ""
    notify_apprise: str = ""
    notify_on: str = "failure"
    results_folder: str = ""
    web: str = "asked"
    no_start: bool = False
    container_engine: str = "auto"
    default_backend: str = "local"
    preemptible: bool | tuple[str, ...] = False  # or the projects of which jobs are
    slice: float | None = None  # seconds; None: no turns are taken
    yield_to_others: bool = False
    backends_slurm_root: str = ""  # empty: the queue's own folder
    backends_slurm_python: str = ""
    backends_slurm_source: str = ""
    backends_slurm_options: tuple[tuple[str, str], ...] = ()
    backends_slurm_conf: str = ""
    backends_slurm_ssh: tuple[str, ...] = ()  # empty: the file system is shared
    backends_slurm_node_root: str = ""
    backends_slurm_most_jobs: int = 1000
    backends_slurm_every: float = 3.0  # seconds
    backends_slurm_patience: float = 60.0  # seconds


_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: how a setting is called, what it is by default, and what it does."""

    name: str  # with dots where it stands in a table of the file: `backends.slurm.root`
    variable: str
    default: str  # as it would be written
    read: Callable[[object], Any]  # raises BadInput with the remedy as its message
    sentence: str

    @property
    def field(self) -> str:
        """What it is called among the Settings."""
        return self.name.replace(".", "_")

    @property
    def value_by_default(self) -> Any:
        return getattr(_DEFAULTS, self.field)


TABLE = (
    Setting("gpus", "DIBS_POOL", "auto", values.gpus, "The GPUs that dibs uses: auto, or ids like 0,1 or 0,0,1."),
    Setting(
        "gpu_order",
        "DIBS_GPU_ORDER",
        "emptiest",
        values.gpu_order,
        "Which GPU is taken first: emptiest, coolest, last, or ids like 3,2.",
    ),
    Setting(
        "min_free", "DIBS_MIN_FREE", "0", values.whole(0), "This many unused GPUs are left free for other users."
    ),
    Setting(
        "respect_graphics",
        "DIBS_RESPECT_GRAPHICS",
        "false",
        values.truth,
        "Whether a GPU counts as busy when a process only draws on it.",
    ),
    Setting(
        "ignore_memory",
        "DIBS_IGNORE_MEMORY",
        "0",
        values.size_or_zero,
        "Other people's processes that hold less of a GPU's memory are overlooked: 200M.",
    ),
    Setting(
        "reading_seconds",
        "DIBS_READING_SECONDS",
        "1",
        values.pause,
        "How often the GPUs are looked at while jobs wait or run.",
    ),
    Setting(
        "retention", "DIBS_RETENTION", "never", values.duration, "When jobs that are over are removed: never, 30d."
    ),
    Setting(
        "max_quick_failures",
        "DIBS_MAX_QUICK_FAILURES",
        "5",
        values.whole(0),
        "So many quick failures in a row hold a project; 0: never.",
    ),
    Setting(
        "quick_seconds", "DIBS_QUICK_SECONDS", "10", values.seconds, "A failure in so few seconds is a quick one."
    ),
    Setting(
        "gpu_failures",
        "DIBS_GPU_FAILURES",
        "3",
        values.whole(0),
        "So many failures in a row on one GPU quarantine it; 0: never.",
    ),
    Setting(
        "canary",
        "DIBS_CANARY",
        "auto",
        values.canary,
        "How a quarantined GPU is tested: auto, never, or a command that ends with 0 if it works.",
    ),
    Setting(
        "canary_after",
        "DIBS_CANARY_AFTER",
        "10m",
        values.time,
        "When a quarantined GPU is tested first; then after twice the time, and so on up to a day.",
    ),
    Setting(
        "log_limit", "DIBS_LOG_LIMIT", "1G", values.size, "The most that is kept of each output stream of a job."
    ),
    Setting(
        "keep_logs",
        "DIBS_KEEP_LOGS",
        "never",
        values.size_or_never,
        "When output of old jobs is removed: never, or where all of it is more than 50G.",
    ),
    Setting(
        "notify_command", "DIBS_NOTIFY_COMMAND", "", values.text, "A command that is run to tell you about a job."
    ),
    Setting("notify_webhook", "DIBS_NOTIFY_WEBHOOK", "", values.text, "An address that is sent JSON about a job."),
    Setting(
        "notify_apprise",
        "DIBS_NOTIFY_APPRISE",
        "",
        values.text,
        "An address of apprise, such as mailto://...; it needs `pip install dibs[notify]`.",
    ),
    Setting(
        "notify_on",
        "DIBS_NOTIFY_ON",
        "failure",
        values.one_of("failure", "end", "never"),
        "What you are told about jobs that say nothing themselves: failure, end, never.",
    ),
    Setting(
        "results_folder",
        "DIBS_RESULTS_FOLDER",
        "",
        values.folder,
        "The folder of links project/name/number to what jobs left; empty: results in the state folder; or none.",
    ),
    Setting(
        "web",
        "DIBS_WEB",
        "asked",
        values.web,
        "When browsers can open the page: asked (after `dibs web`), never, or always at 127.0.0.1:8265.",
    ),
    Setting("no_start", "DIBS_NO_START", "false", values.truth, "Do not start the daemon with the first command."),
    Setting(
        "container_engine",
        "DIBS_CONTAINER_ENGINE",
        "auto",
        values.one_of("auto", "podman", "docker", "apptainer", "runc"),
        "What runs a job that has an image: podman, docker, apptainer, runc, or auto for what is installed.",
    ),
    Setting(
        "preemptible",
        "DIBS_PREEMPTIBLE",
        "off",
        values.truth_or_names,
        "Whether urgent jobs may suspend jobs that do not say so: on, off, or projects: vision,audio.",
    ),
    Setting(
        "slice",
        "DIBS_SLICE",
        "off",
        values.time_or_off,
        "How long a job has a GPU until it is suspended for one of another project or sweep: off, or 30m.",
    ),
    Setting(
        "yield_to_others",
        "DIBS_YIELD_TO_OTHERS",
        "off",
        values.truth,
        "Whether preemptible jobs are suspended while a program without dibs uses their GPU: on or off.",
    ),
    Setting(
        "default_backend",
        "DIBS_BACKEND",
        "local",
        values.one_of("local", "slurm"),
        "Where jobs run that do not say so with --on: local (this machine) or slurm.",
    ),
    Setting(
        "backends.slurm.root",
        "DIBS_SLURM_ROOT",
        "",
        values.path,
        "A folder that all nodes see, for what jobs on Slurm leave; empty: the state folder.",
    ),
    Setting(
        "backends.slurm.python",
        "DIBS_SLURM_PYTHON",
        "",
        values.path,
        "The Python (3.11 or newer) that all nodes have at this path; empty: the one that runs dibs.",
    ),
    Setting(
        "backends.slurm.source",
        "DIBS_SLURM_SOURCE",
        "",
        values.path,
        "The folder in which all nodes find the package dibs; empty: where it is here.",
    ),
    Setting(
        "backends.slurm.options",
        "DIBS_SLURM_OPTIONS",
        "",
        values.options,
        "For every job that does not say otherwise: partition=gpu,account=lab,qos=normal.",
    ),
    Setting(
        "backends.slurm.conf",
        "DIBS_SLURM_CONF",
        "",
        values.path,
        "Slurm's configuration file; empty: SLURM_CONF, else `dibs cluster up`'s, else Slurm's own.",
    ),
    Setting(
        "backends.slurm.ssh",
        "DIBS_SLURM_SSH",
        "",
        values.words,
        "How nodes are reached that share no file system: ssh -o BatchMode=yes; empty: they share one.",
    ),
    Setting(
        "backends.slurm.node_root",
        "DIBS_SLURM_NODE_ROOT",
        "",
        values.path,
        "With ssh, the folder on the nodes for what jobs leave until it is fetched.",
    ),
    Setting(
        "backends.slurm.most_jobs",
        "DIBS_SLURM_MOST_JOBS",
        "1000",
        values.whole(1),
        "So many jobs are handed to Slurm at once; the others wait here.",
    ),
    Setting(
        "backends.slurm.every", "DIBS_SLURM_EVERY", "3s", values.time, "How often Slurm is asked about the jobs."
    ),
    Setting(
        "backends.slurm.patience",
        "DIBS_SLURM_PATIENCE",
        "60s",
        values.time,
        "How long a job that Slurm does not know any more is awaited before it counts as lost.",
    ),
)
