"""What a script that was written for Slurm is told on this machine, in Slurm's words.

Only a script with `#SBATCH` lines is told: libraries take such variables for a sign that Slurm runs them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dibs.model.jobs import Attempt, Job

SUBMIT_DIR = "SLURM_SUBMIT_DIR"  # set when a script is read; who has it is told the rest when it starts


class TaskHost(NamedTuple):
    """Where it runs, and for whom."""

    host: str
    cpus: int
    uid: int
    user: str


def slurm_variables(job: Job, attempt: Attempt, env: Mapping[str, str], machine: TaskHost) -> dict[str, str]:
    """The variables of one task on one node; `env` has what dibs says of its cards."""
    wishes, array = job.request.wishes, job.request.array
    number, name = str(job.id), job.request.name or job.request.command.words[-1].rpartition("/")[2]
    host, on_node = machine.host.partition(".")[0], str(wishes.cpus or machine.cpus)
    one = dict.fromkeys(
        ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"), "1"
    )
    first = dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS"), "0")
    here = dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST"), host)
    found = one | first | here
    found |= {"SLURM_JOB_ID": number, "SLURM_JOBID": number, "SLURM_JOB_NAME": name, "SLURM_CLUSTER_NAME": "local"}
    found |= {"SLURM_JOB_USER": machine.user, "SLURM_JOB_UID": str(machine.uid)}
    found |= {"SLURM_RESTART_COUNT": str(attempt.number - 1)}
    found |= {"SLURM_CPUS_ON_NODE": on_node, "SLURM_JOB_CPUS_PER_NODE": on_node}
    if wishes.cpus is not None:
        found["SLURM_CPUS_PER_TASK"] = str(wishes.cpus)
    if wishes.mem is not None:
        found["SLURM_MEM_PER_NODE"] = str(wishes.mem // 1024**2)
    if cards := env.get("DIBS_GPUS", ""):
        found |= dict.fromkeys(("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"), cards)
        found |= dict.fromkeys(("SLURM_GPUS", "SLURM_GPUS_ON_NODE"), str(len(cards.split(","))))
    if array is not None:
        found["SLURM_ARRAY_JOB_ID"] = str(array.array)
    return found
