"""Where an engine's files are, and what its shims are told."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dibs.files import replace_file
from dibs.model.claims import gpu_environment
from dibs.model.jobs import Attempt, Job, JobId


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """An engine's folder and whatever of its surroundings a job inherits."""

    root: str  # attempts/, environments/ and control/ live here
    boot_id: str
    run: str  # the run's name, for DIBS_RUN
    umask: int
    workdir: str  # the caller's folder
    log_limit: int | None = None  # bytes kept of each of a job's streams

    def attempt_folder(self, job: JobId, number: int) -> str:
        # A thousand in a folder: listing one stays quick with a million jobs.
        return f"{self.root}/attempts/{job // 1000}/{job}.{number}"

    def home_of(self, attempt: Attempt) -> "Place | None":
        """The place in which an attempt has its folder, here or elsewhere; None where it is none that we give."""
        inside = self.attempt_folder(attempt.job, attempt.number).removeprefix(self.root)
        found = replace(self, root=attempt.folder.removesuffix(inside))
        is_whole = found.attempt_folder(attempt.job, attempt.number) == attempt.folder
        return found if is_whole and found.root == os.path.abspath(found.root) else None

    def checkpoint_folder(self, job: JobId) -> str:
        """The same for every attempt of a job."""
        return f"{self.root}/checkpoints/{job // 1000}/{job}"

    def keep_environment(self, key: str, environment: Mapping[str, str]) -> None:
        """Write an environment down for the shims, once, for our eyes only."""
        path = self.environment_path(key)
        if os.path.exists(path):
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        replace_file(path, json.dumps(dict(environment)))

    def spec(
        self,
        job: Job,
        attempt: Attempt,
        stdout: str,
        stderr: str,
        *,
        port: int | None = None,
        cpus: Sequence[int] = (),
    ) -> dict[str, Any]:
        """What a shim needs to know to run an attempt: on these CPUs, with a port for its processes to meet."""
        request = job.request
        env = {
            # Another system tells its jobs itself which cards they have.
            **({} if attempt.backend else gpu_environment(attempt.claims)),
            "DIBS_JOB_ID": str(job.id),
            "DIBS_JOB_NAME": request.name,
            "DIBS_ATTEMPT": str(attempt.number),
            "DIBS_RUN": self.run,
            "DIBS_METRICS": f"{attempt.folder}/metrics",
            # Inside a job the pool is that job's own claims: its leases are a world of their own.
            "DIBS_LEASES": f"{attempt.folder}/leases",
            **dict(request.env),
        }
        if request.array is not None:
            env["DIBS_ARRAY_ID"] = str(request.array.array)
            env["DIBS_ARRAY_TASK_ID"] = str(request.array.task)
        if request.checkpoint is not None:
            env["DIBS_CHECKPOINT_DIR"] = self.checkpoint_folder(job.id)
        if request.workdir:
            env["PWD"] = os.path.join(self.workdir, request.workdir)
        more: dict[str, Any] = {"cpus": list(cpus)} if cpus else {}
        if request.warm:
            # What is the same for all attempts that may come from one warm process. Our own variables are not:
            # they tell one job from another.
            lasting = {name: value for name, value in request.env if not name.startswith("DIBS_")}
            if "PWD" in env:
                lasting.setdefault("PWD", env["PWD"])
            more["warm"] = {"modules": request.warm, "env": lasting}
        if port is not None:
            env.setdefault("MASTER_PORT", str(port))
            more["unless_set"] = {"MASTER_ADDR": "127.0.0.1"}
        return {
            "v": 1,
            "job": job.id,
            "attempt": attempt.number,
            "words": request.command.words,
            "workdir": os.path.join(self.workdir, request.workdir),
            "umask": self.umask if request.umask is None else request.umask,
            "environment": self.environment_path(job.environment),
            "env": env,
            **more,
            "stdout": stdout,
            "stderr": stderr,
            "time_limit": request.time_limit,
            "grace": request.grace,
            "checkpoint": None
            if request.checkpoint is None
            else (request.checkpoint.signal, request.checkpoint.seconds),
            # A file that the user named is not shortened.
            "log_limit": None if request.output else self.log_limit,
        }

    def environment_path(self, key: str) -> str:
        return f"{self.root}/environments/{key}.json"
