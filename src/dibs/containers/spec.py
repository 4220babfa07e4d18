"""A shim's spec for a command in a container: the words of the engine take the place of the command's.

What becomes of the container when its supervisor has ended is in the spec too, so that it can be found, ended and
removed from the attempt's folder alone.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from dibs.containers.cards import variables_inside
from dibs.containers.engines import ContainerEngine, ContainerHost, ContainerRun
from dibs.containers.variables import is_for_containers, left_out
from dibs.errors import BadInput
from dibs.model.gpus import Claim
from dibs.model.jobs import Request
from dibs.model.mounts import Mount, parse_mount


def container_name(root: str, job: int, attempt: int) -> str:
    """The attempt's name among all containers of this machine; `root` is the folder of its queue or run."""
    queue = hashlib.blake2b(root.encode("utf-8", "surrogateescape"), digest_size=5).hexdigest()
    return f"dibs-{queue}-{job}.{attempt}"


def check_mountable(engine: str, path: str) -> None:
    """Refuse a path that no engine can be told: they speak JSON, which is text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{engine} cannot mount {path!r}: its name is no UTF-8 text", remedy="rename it") from None


def contained(
    spec: Mapping[str, Any],
    request: Request,
    engine: ContainerEngine,
    host: ContainerHost,
    *,
    name: str,
    folder: str,
    words: Sequence[str],
    captured: Mapping[str, str],
    claims: Sequence[Claim] = (),
    has_input: bool = False,
    has_terminal: bool = False,
    config: str = "",
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """The spec of the same command in a container, and the files that must be written before it starts."""
    cards = variables_inside(claims, engine.cards(claims, host)) if claims else {}
    own = {**spec["env"], **{key: value for key, value in cards.items() if key not in dict(request.env)}}
    # A variable of the host's own paths that the user set is for the container; the engine keeps the host's.
    fixed = {key: value for key, value in own.items() if not is_for_containers(key)}
    own = {key: value for key, value in own.items() if key not in fixed}
    mounts = mounts_of(spec, folder, request.mounts)
    for mount in mounts:
        check_mountable(engine.name, mount.source)
    run = ContainerRun(
        name=name,
        image=request.image,
        words=for_any_shell(words),
        folder=folder,
        workdir=spec["workdir"],
        environment={key: value for key, value in captured.items() if is_for_containers(key)}
        | {key: value for key, value in spec.get("unless_set", {}).items() if key not in captured}
        | own,
        fixed=fixed,
        home=_home(captured.get("HOME", ""), mounts),
        left_out=left_out(captured),
        mounts=mounts,
        claims=claims,
        cpus=spec.get("cpus", ()),
        umask=spec["umask"],
        has_input=has_input,
        has_terminal=has_terminal,
        config=config,
    )
    container = {
        "engine": engine.name,
        "name": name,
        "remove": engine.remove(name, folder),
        "state": engine.state(name, folder),
        "has_own_pids": engine.has_own_pids,
        "hands_signals_on": engine.hands_signals_on,
        "has_init": engine.name in host.inits,
    }
    return {**spec, "words": engine.run(run, host), "env": own, "container": container}, engine.files(run, host)


def mounts_of(spec: Mapping[str, Any], folder: str, wanted: Sequence[str]) -> tuple[Mount, ...]:
    """The working folder, the attempt's own, that for its checkpoints, and what the user named."""
    paths = [spec["workdir"], folder]
    if checkpoints := spec["env"].get("DIBS_CHECKPOINT_DIR"):
        paths.append(checkpoints)
    named = {mount.target: mount for mount in map(parse_mount, wanted)}
    found = {path: Mount(path, path) for path in paths}
    return tuple((found | named).values())


def for_any_shell(words: Sequence[str]) -> Sequence[str]:
    """A line for bash, which goes to `sh` where the image has no bash."""
    if len(words) != 3 or list(words[:2]) != ["bash", "-c"]:
        return words
    return ("sh", "-c", 'command -v bash >/dev/null 2>&1 && exec bash -c "$0"; exec sh -c "$0"', words[2])


def _home(home: str, mounts: Sequence[Mount]) -> str:
    """The user's own home where the container sees it, else a folder that everyone may write to."""
    there = (mount.source for mount in mounts if mount.source == mount.target)
    is_seen = any(home == path or home.startswith(path.rstrip("/") + "/") for path in there)
    return home if home and is_seen else "/tmp"
