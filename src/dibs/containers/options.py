"""The options that podman and docker share."""

from collections.abc import Iterator

from dibs.containers.engines import ContainerRun
from dibs.model.mounts import Mount

# What the shim reads: how the command ended, and when it was started, which may contain blanks.
STATE_FORMAT = "{{.State.Status}} {{.State.ExitCode}} {{.State.StartedAt}}"


def shared_options(run: ContainerRun) -> list[str]:
    """Name, network, folder, mounts and variables.

    The network is that of the machine, as for any job: ports need no mapping. The image's entry point is not used:
    the command is what was asked for. Signals are not handed on by the client: the shim sends them to the
    processes inside.
    """
    found = ["--name", run.name, "--network=host", "--pull=never", "--log-driver=none"]
    found += ["--sig-proxy=false", "--entrypoint=", "--workdir", run.workdir]
    found += [word for mount in run.mounts for word in ("--mount", mount_option(mount))]
    # Names only: the values come from the environment of the client, and are not in the list of processes.
    found += [word for name in sorted(run.environment) for word in ("--env", name)]
    found += [word for name, value in _fixed(run).items() for word in ("--env", f"{name}={value}")]
    if run.has_input or run.has_terminal:
        found.append("--interactive")
    if run.has_terminal:
        found.append("--tty")
    return found


def _fixed(run: ContainerRun) -> dict[str, str]:
    return {"HOME": run.home, **run.fixed}


def mount_option(mount: Mount) -> str:
    """`type=bind,src=...,dst=...`, quoted as CSV: a path may contain a comma."""
    parts = [
        "type=bind",
        f"src={mount.source}",
        f"dst={mount.target}",
        *(["readonly"] if mount.is_read_only else []),
    ]
    return ",".join(_quoted(parts))


def _quoted(parts: list[str]) -> Iterator[str]:
    for part in parts:
        yield '"' + part.replace('"', '""') + '"' if set(part) & set(',"\n') else part
