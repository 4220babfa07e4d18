"""Slurm as a place where attempts run, from the settings or from `dibs cluster up`."""

import os
from collections.abc import Mapping
from typing import Any

from dibs import paths
from dibs.backends.protocol import Backend
from dibs.backends.slurm.backend import SlurmBackend
from dibs.backends.slurm.controller import Commands
from dibs.backends.slurm.root_mark import memory_in
from dibs.backends.slurm.settings import SlurmSettings
from dibs.cluster.saved import known_cluster
from dibs.errors import BadInput
from dibs.settings import TABLE, Settings

BACKENDS = ("slurm",)  # beside this machine


def build_backend(name: str, environ: Mapping[str, str], settings: Settings, root: str = "") -> Backend:
    """Another system as a place where attempts run; `root` is the queue's own folder."""
    if name not in BACKENDS:
        raise BadInput(f"there is no backend {name[:100]!r}", remedy=f"dibs knows local and {', '.join(BACKENDS)}")
    return build_slurm(environ, settings, root or paths.queue_folder(environ))


def build_slurm(environ: Mapping[str, str], settings: Settings, root: str) -> SlurmBackend:
    """The cluster that was named, else the one of `dibs cluster up`, else the one that Slurm finds itself."""
    there = settings.backends_slurm_root or root
    variables = dict(environ)
    ours: dict[str, Any] = {}
    conf = settings.backends_slurm_conf or environ.get("SLURM_CONF", "")
    if not conf and (cluster := known_cluster(environ)) is not None:
        conf = cluster.conf
        variables["PATH"] = f"{cluster.bin}:{environ.get('PATH') or os.defpath}"
        ours = {"python": cluster.python, "source": cluster.source}
        if cluster.is_shared:
            there = settings.backends_slurm_root or cluster.node_root
        else:
            ours |= {"ssh": cluster.ssh, "node_root": cluster.node_root, "destinations": cluster.destinations}
    if conf:
        variables["SLURM_CONF"] = conf
    for field in ("python", "source", "ssh", "node_root"):
        if value := getattr(settings, f"backends_slurm_{field}"):
            ours[field] = value
    return SlurmBackend(
        SlurmSettings(
            root=os.path.abspath(there),
            options=settings.backends_slurm_options,
            patience=settings.backends_slurm_patience,
            memory=memory_in(root),
            **ours,
        ),
        Commands(variables),
    )


def is_set_up(environ: Mapping[str, str], settings: Settings) -> bool:
    """Whether any setting is about Slurm."""
    rows = [row for row in TABLE if row.name == "default_backend" or row.name.startswith("backends.slurm.")]
    is_said = any(getattr(settings, row.field) != row.value_by_default for row in rows)
    return is_said or known_cluster(environ) is not None
