"""The options of `sbatch`, and what dibs does with each: one table for scripts, settings and the API.

What is not in the table is an option of a newer Slurm: Slurm is asked, and says whether it knows it.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from dibs.errors import BadInput


class Use(StrEnum):
    """What dibs does with an option of Slurm."""

    OURS = "ours"  # dibs reads it, and does the same here and there
    SIZE = "size"  # passed on to Slurm; on this machine it would be another job without it
    SITE = "site"  # passed on to Slurm; on this machine it has no meaning
    TALK = "talk"  # about sbatch itself, or what dibs does anyway
    NEVER = "never"  # dibs cannot do it anywhere


_NAMES = {
    Use.OURS: "job-name output error chdir array export requeue no-requeue dependency begin time signal hold"
    " container-image container-mounts container-workdir",
    Use.SIZE: "nodes ntasks ntasks-per-node ntasks-per-socket ntasks-per-core ntasks-per-gpu cpus-per-task"
    " cpus-per-gpu mem mem-per-cpu mem-per-gpu gpus gpus-per-node gpus-per-socket gpus-per-task gres"
    " tres-per-task tres-per-job exclusive mincpus tmp deadline time-min container container-id bb bbf overcommit"
    " cores-per-socket sockets-per-node threads-per-core extra-node-info nodefile stepmgr resv-ports network",
    Use.SITE: "partition account qos constraint prefer reservation exclude nodelist licenses mail-user mail-type"
    " wckey comment nice priority mcs-label acctg-freq profile propagate switches delay-boot power reboot"
    " admin-comment cluster-constraint cpu-freq gpu-freq gpu-bind mem-bind gres-flags tres-bind hint distribution"
    " core-spec thread-spec contiguous spread-job use-min-nodes oversubscribe no-kill extra segment oom-kill-step",
    Use.TALK: "parsable quiet verbose help usage version kill-on-invalid-dep ignore-pbs get-user-env",
    Use.NEVER: "wait test-only clusters input wrap uid gid export-file open-mode batch",
}
OPTIONS = {name: use for use, names in _NAMES.items() for name in names.split()}
# Their value is left out, or stands behind `=`.
_FLAGS = """
requeue no-requeue hold exclusive overcommit contiguous spread-job use-min-nodes oversubscribe no-kill reboot nice
propagate parsable quiet verbose help usage version ignore-pbs get-user-env wait test-only stepmgr resv-ports
"""
_WITHOUT_VALUE = frozenset(_FLAGS.split())
_LETTERS = """
J=job-name o=output e=error D=chdir a=array d=dependency b=begin t=time H=hold N=nodes n=ntasks c=cpus-per-task
G=gpus F=nodefile B=extra-node-info O=overcommit p=partition A=account q=qos C=constraint x=exclude w=nodelist
L=licenses S=core-spec s=oversubscribe k=no-kill m=distribution Q=quiet v=verbose h=help V=version W=wait
M=clusters i=input
"""
SHORT = dict(pair.split("=") for pair in _LETTERS.split())
_MOST_HOSTS = 10_000  # of one range
# Any of these says itself how many cards, tasks or nodes the job has.
OF_GPUS = frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"})
OF_TASKS = frozenset(name for name in OPTIONS if name.startswith("ntasks")) | {"nodes"}
OF_MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
# Slurm spreads these over as many nodes as it takes.
SPREAD = OF_TASKS | {"gpus", "nodefile"}


def of_pyxis(options: Mapping[str, str]) -> dict[str, str]:
    """Those that pyxis adds to Slurm's: they are for the step that runs in the container, not for the job."""
    return {name: value for name, value in options.items() if re.match(r"(no-)?container-(?!id$)", name)}


def takes_value(name: str) -> bool:
    return name not in _WITHOUT_VALUE


def whole_name(text: str) -> str:
    """The name of an option as it is written: `-N`, `--nodes`, or the beginning of one that is no other's."""
    if not text.startswith("--") and len(text) == 2:
        return SHORT.get(text[1], text)
    name = text.removeprefix("--")
    if name in OPTIONS or not name:
        return name
    found = [one for one in OPTIONS if one.startswith(name)]
    if len(found) > 1:
        raise BadInput(
            f"--{name[:60]} may mean {' or '.join(f'--{one}' for one in found[:5])}", remedy="write it out"
        )
    return found[0] if found else name


def use_of(name: str) -> Use:
    """What dibs does with it; an option that is not known may change the size of a job."""
    return OPTIONS.get(name, Use.SIZE)


def is_passed_on(name: str) -> bool:
    """Whether Slurm may be told this. A shortened name could be one that only dibs may set."""
    if name in OPTIONS:
        return OPTIONS[name] in (Use.SIZE, Use.SITE)
    return bool(re.fullmatch(r"[a-z][a-z0-9-]{1,59}", name)) and not any(one.startswith(name) for one in OPTIONS)


def check_options(options: Mapping[str, str], *, may_be_new: bool = True) -> None:
    """The same for all options of a job, and for what two of them say together."""
    for name, value in options.items():
        check_option(name, value, may_be_new=may_be_new)
    both = sorted(hosts(options.get("nodelist", "")) & hosts(options.get("exclude", "")))
    if both:
        raise BadInput(
            f"cannot run a job on {', '.join(both[:5])}, which it is to avoid: --nodelist and --exclude name it",
            remedy="take it out of one of them",
        )


def hosts(text: str) -> set[str]:
    """The nodes of `n1,n[3-5,07]`, as far as they can be counted here."""
    found: set[str] = set()
    for one in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        head, bracket, rest = one.partition("[")
        inside, _, tail = rest.partition("]")
        if not bracket:
            found.add(one)
            continue
        for part in inside.split(","):
            first, dash, last = part.partition("-")
            if first.isdecimal() and (last.isdecimal() or not dash) and "[" not in tail:
                numbers = range(int(first), min(int(last or first), int(first) + _MOST_HOSTS) + 1)
                found.update(f"{head}{number:0{len(first)}}{tail}" for number in numbers)
    return found


def check_option(name: str, value: str, *, may_be_new: bool = True) -> None:
    """Raise BadInput for an option that Slurm cannot be told with this value; an empty one is no value."""
    if not is_passed_on(name) or not (may_be_new or name in OPTIONS):
        remedy = f"dibs does --{name} itself" if use_of(name) is Use.OURS else "`sbatch --help` lists its options"
        raise BadInput(f"cannot tell Slurm about {name[:60]!r}", remedy=remedy)
    blank = "" if name == "comment" else r"\s"
    if re.fullmatch(rf"[^{blank}\x00-\x1f\x7f]{{1,300}}", value):
        return
    if not value and (name in _WITHOUT_VALUE or name not in OPTIONS):
        return
    remedy = "write it without blanks" if value else "leave it out where Slurm's own is meant"
    raise BadInput(f"cannot give Slurm {value[:60]!r} as {name}", remedy=remedy)
