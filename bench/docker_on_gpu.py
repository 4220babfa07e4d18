"""Docker with a real card, seen from dibs: `python bench/docker_on_gpu.py --engine FOLDER`, as root.

FOLDER is what `bench/gpu/pack_docker.sh` packs: docker's programs with the libraries they need, and the root of a
small image. Nothing is installed: dockerd gets a socket and folders of its own, and the files that it and dibs
read below /etc are seen by these processes only. Cards are given by CDI, and then by `--gpus` with a stand-in for
NVIDIA's hook. dibs must be importable without PYTHONPATH, which its daemon does not get.
"""

import argparse
import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpu.world import World, seconds_until

from dibs.supervise.container_usage import numbers_inside
from dibs.supervise.folder import marked_processes, record_of

_HERE = Path(__file__).parent
_DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib")
_LIBRARIES = ("libcuda.so*", "libnvidia-ml.so*", "libnvidia-ptxjitcompiler.so*", "libnvidia-gpucomp.so*")
_IN_THE_IMAGE = "/usr/local/nvidia/lib64"
_HELD = 2048  # MiB of the card
_NEW_NAMESPACE, _PRIVATE, _BIND, _RECURSIVE = 0x20000, 1 << 18, 4096, 16384  # unshare(2), mount(2)
_CGROUPS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", type=Path, required=True, help="the folder with bin, lib and root")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    parser.add_argument("--driver", default="", help="the folder of libcuda (default: found)")
    parser.add_argument(
        "--nodes", default="/dev/nvidia*", help="the device files; a number at the end is a card's"
    )
    parser.add_argument("--probe", default="", help="DIBS_PROBE, to try this program without a card")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dibs-docker-", ignore_cleanup_errors=True) as scratch:
        site = Site(arguments, Path(scratch))
        results = Results()
        try:
            site.start()
            for way in ("cdi", "gpus"):
                with site.cards_by(way) as queue:
                    for check in CHECKS:
                        results.see(f"{way}: {check.__doc__}", check, site, queue)
                        queue.end_all()
            results.see("at the end nothing is left", _nothing_is_left, site)
        finally:
            site.stop()
            print(site.said_by_dockerd())
            if arguments.out:
                arguments.out.write_text(json.dumps(results.found, indent=1) + "\n")
    return 1 if any(not one["holds"] for one in results.found) else 0


class Results:
    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def see(self, what: str, check: Callable[..., Any], *more: Any) -> None:
        """A check says what it saw; it raises where that is not what was promised."""
        begin = time.monotonic()
        try:
            holds, seen = True, check(*more)
        except (Exception, SystemExit) as error:
            holds, seen = False, "".join(traceback.format_exception(error)[-2:]).strip()[-3000:]
        seconds = round(time.monotonic() - begin, 1)
        self.found.append({"what": what, "holds": holds, "seconds": seconds, "seen": seen})
        print(f"{'ok  ' if holds else 'FAIL'} {seconds:5.1f} s  {what}\n       {seen}", flush=True)


class Site:
    """Dockerd, an image, and what CDI and the hook are told about the cards."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self._engine: Path = arguments.engine.resolve()
        self._scratch = scratch
        self._probe = {"DIBS_PROBE": arguments.probe} if arguments.probe else {}
        self._driver = arguments.driver or next(
            (folder for folder in _DRIVER_FOLDERS if glob.glob(f"{folder}/libcuda.so.1")), ""
        )
        if not self._driver:
            raise SystemExit("there is no libcuda.so.1: name its folder with --driver")
        self._nodes = sorted(path for path in glob.glob(arguments.nodes) if not os.path.isdir(path))
        self._worlds = 0
        self._dockerd: subprocess.Popen[bytes] | None = None
        self.environment = {
            "PATH": f"{self._engine}/bin:{os.environ['PATH']}",
            "DOCKER_HOST": f"unix://{scratch}/docker.sock",
            "HOME": str(scratch),
        }

    def start(self) -> None:
        _mounts_of_our_own(self._scratch, self._driver)
        print("cgroups:", _cgroups(), flush=True)
        print("device files:", self._nodes, "libraries:", [os.path.basename(one) for one in self._libraries()])
        hook = self._scratch / "hook" / "nvidia-container-runtime-hook"
        hook.parent.mkdir()
        source = (_HERE / "gpu" / "stand_in_nvidia_hook.py").read_text()
        hook.write_text(f"#!{sys.executable} -I\n{source}")
        hook.chmod(0o755)
        Path("/etc/docker").mkdir(exist_ok=True)
        Path("/etc/docker/daemon.json").write_text('{"features": {"cdi": true}}\n')
        Path("/etc/cdi").mkdir(exist_ok=True)
        options = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false"]
        options += ["--userland-proxy=false", "--storage-driver=vfs"]
        places = [f"--{name}={self._scratch}/{name}" for name in ("data-root", "exec-root", "pidfile")]
        with (self._scratch / "dockerd.log").open("wb") as log:
            self._dockerd = subprocess.Popen(
                ["dockerd", *options, *places, "--host", self.environment["DOCKER_HOST"]],
                env=self.environment
                | {
                    "PATH": f"{hook.parent}:{self.environment['PATH']}",
                    "LD_LIBRARY_PATH": f"{self._engine}/lib",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        seconds_until(lambda: bool(self.docker("info", "--format", "{{.ServerVersion}}")), "dockerd answers")
        archive = self._scratch / "image.tar"
        subprocess.run(["tar", "-C", self._engine / "root", "-cf", archive, "."], check=True)
        self.docker("import", "--change", f"ENV LD_LIBRARY_PATH={_IN_THE_IMAGE}", str(archive), "cuda-check")
        print("docker", self.docker("info", "--format", "{{.ServerVersion}} {{.CgroupVersion}} {{.CDISpecDirs}}"))

    def stop(self) -> None:
        if self._dockerd is not None:
            self._dockerd.terminate()
            try:
                self._dockerd.wait(30)
            except subprocess.TimeoutExpired:
                self._dockerd.kill()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if (path := line.split()[1]).startswith(f"{self._scratch}/"):
                subprocess.run(["umount", "-l", path], check=False)

    def said_by_dockerd(self) -> str:
        """The end of its log, without what it says of each thing that it starts."""
        log = self._scratch / "dockerd.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(["dockerd said:", *[line for line in lines if "level=info" not in line][-40:]])

    def docker(self, *words: str) -> str:
        """What a command prints; empty where it failed."""
        done = subprocess.run(
            ["docker", *words], env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    @contextmanager
    def cards_by(self, way: str) -> Iterator["Queue"]:
        """A queue whose containers get their cards by CDI, or by `--gpus` and the hook."""
        self._worlds += 1
        world = World(self._scratch / f"queue-{self._worlds}")
        world.environment |= self.environment | self._probe
        queue = Queue(world)
        cards = json.loads(world.dibs("gpus", "--json"))
        hook = self._scratch / "hook"
        if way == "cdi":
            Path("/etc/cdi/nvidia.json").write_text(json.dumps(self._cdi(cards), indent=1))
        else:
            Path("/etc/cdi/nvidia.json").unlink()
            (hook / "cards.json").write_text(json.dumps(self._for_the_hook(cards)))
            world.environment["PATH"] = f"{hook}:{world.environment['PATH']}"
        try:
            yield queue
        finally:
            world.stop()

    def cards_given(self) -> list[str]:
        """What docker told the hook, container after container."""
        given = self._scratch / "hook" / "given"
        return given.read_text().splitlines() if given.exists() else []

    def _libraries(self) -> list[str]:
        return sorted(path for pattern in _LIBRARIES for path in glob.glob(f"{self._driver}/{pattern}"))

    def _of_card(self, index: int) -> list[str]:
        """Their numbers need not begin at 0 where a machine was given one card of several."""
        numbered = [node for node in self._nodes if node[-1].isdigit()]
        return sorted(numbered, key=lambda node: (len(node), node))[index : index + 1]

    def _shared(self) -> list[str]:
        return [node for node in self._nodes if not node[-1].isdigit()]

    def _cdi(self, cards: list[dict[str, Any]]) -> dict[str, Any]:
        """As `nvidia-ctk cdi generate` writes it."""
        devices = [
            {
                "name": name,
                "containerEdits": {"deviceNodes": [{"path": node} for node in self._of_card(card["index"])]},
            }
            for card in cards
            for name in (card["key"], str(card["index"]))
        ]
        options = ["ro", "nosuid", "nodev", "bind"]
        mounts = [
            {"hostPath": path, "containerPath": f"{_IN_THE_IMAGE}/{os.path.basename(path)}", "options": options}
            for path in self._libraries()
        ]
        edits = {"deviceNodes": [{"path": node} for node in self._shared()], "mounts": mounts}
        return {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": edits}

    def _for_the_hook(self, cards: list[dict[str, Any]]) -> dict[str, Any]:
        by_name = {
            name: self._of_card(card["index"]) for card in cards for name in (card["key"], str(card["index"]))
        }
        return {"shared": self._shared(), "by_name": by_name, "libraries": self._libraries()}


class Queue:
    """Jobs in containers of docker, in one queue."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._jobs: list[int] = []

    def add(self, *words: str) -> int:
        options = ("--image", "cuda-check", "--container-engine", "docker")
        self._jobs.append(int(self.world.add("--retries", "0", *options, *words)))
        return self._jobs[-1]

    def end_all(self) -> None:
        """So that no job of one check is in the way of the next."""
        for job in self._jobs:
            self.world.dibs("kill", str(job), may_fail=True)
        while self._jobs:
            self.world.dibs("wait", "-q", str(self._jobs.pop()), may_fail=True)

    def ended(self, job: int) -> dict[str, Any]:
        self.world.dibs("wait", "-q", str(job), may_fail=True)
        return self.world.info(job)

    def seen_inside(self, job: int) -> dict[str, Any]:
        """What the program in the container printed."""
        first = self.log(job).splitlines()[0]
        found: dict[str, Any] = json.loads(first)
        return found

    def holds(self, seconds: int) -> int:
        """A job that holds memory of a card, and does."""
        job = self.add("-n", "1", "--grace", "1s", "--", "cuda_check", str(_HELD), str(seconds))
        seconds_until(
            lambda: "holds" in self.log(job) or self.world.info(job)["exit_code"] is not None, "it holds memory"
        )
        expect("holds" in self.log(job), self.log(job))
        return job

    def log(self, job: int) -> str:
        """Empty where it has not started."""
        return self.world.dibs("log", str(job), may_fail=True)

    def folder(self, job: int) -> str:
        return str(self.world.info(job)["folder"])

    def card(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = next(
            one for one in json.loads(self.world.dibs("gpus", "--json")) if one["key"] == key
        )
        return found

    def holders(self, key: str) -> list[str]:
        return [str(one["job"]) for one in self.card(key)["holders"]]

    def card_of(self, job: int) -> str:
        """Its UUID, as the program inside saw it."""
        (card,) = self.seen_inside(job)["cards"]
        return str(card)

    def ends(self, job: int) -> None:
        """`dibs kill`, and nothing of it is left."""
        folder = self.folder(job)
        self.world.dibs("kill", str(job), may_fail=True)
        seconds_until(lambda: not numbers_inside(folder), "it is ended")


def expect(holds: object, seen: object) -> None:
    if not holds:
        raise AssertionError(f"{seen}")


def _one_card(site: Site, queue: Queue) -> Any:
    """a job with `-n 1` sees its own card only, and its exit code is kept"""
    job = queue.add("-n", "1", "--", "sh", "-c", "cuda_check; ls /dev | grep -c nvidia; exit 7")
    info = queue.ended(job)
    seen = queue.seen_inside(job)
    (index,) = info["attempts_list"][-1]["gpus"]
    (outside,) = [one for one in json.loads(queue.world.dibs("gpus", "--json")) if one["index"] == index]
    expect(seen["cards"] == [outside["key"]], (seen, outside, queue.log(job)))
    expect(seen["cuda_visible_devices"] == "0" and seen["dibs_gpus"] == str(index), seen)
    expect((info["state"], info["exit_code"]) == ("failed", 7), info)
    return seen


def _no_card(site: Site, queue: Queue) -> Any:
    """a job with `-n 0` sees no card"""
    job = queue.add("-n", "0", "--", "sh", "-c", "cuda_check; echo $?; ls /dev | grep nvidia; true")
    info = queue.ended(job)
    log = queue.log(job)
    lines = [line for line in log.splitlines() if "libcuda" not in line]
    seen = json.loads(lines[0])
    expect(seen["cards"] == [] and seen["cuda_visible_devices"] == "", log)
    expect(lines[1:] == ["3"] and info["state"] == "succeeded", log)
    return seen


def _use(site: Site, queue: Queue) -> Any:
    """memory and load of a container are the job's, and `dibs kill` ends it"""
    job = queue.holds(120)
    key, folder = queue.card_of(job), queue.folder(job)
    least = _HELD * 2**20
    seconds_until(
        lambda: ((queue.world.info(job)["usage"] or {}).get("peak_vram_bytes") or 0) >= least, "its memory"
    )
    time.sleep(3)  # a few more readings, for its load
    card, usage = queue.card(key), queue.world.info(job)["usage"]
    expect(card["foreign"] == [] and [one["job"] for one in card["holders"]] == [str(job)], card)
    expect(card["memory_used_bytes"] >= least, card)
    expect(usage["peak_vram_bytes"] < least * 2, usage)
    begin = time.monotonic()
    queue.world.dibs("kill", str(job))
    info = queue.ended(job)
    took = time.monotonic() - begin
    expect(info["state"] == "cancelled", info)
    expect(not marked_processes(folder) and site.docker("ps", "-aq") == "", site.docker("ps", "-a"))
    seconds_until(lambda: queue.card(key)["state"] == "free", "the card is free", 15)
    return {"usage": usage, "attempt": info["attempts_list"][-1], "seconds_of_kill": round(took, 2)}


def _shim(site: Site, queue: Queue) -> Any:
    """kill -9 of the supervisor: the container keeps its card until it has ended"""
    job = queue.holds(20)
    key, folder = queue.card_of(job), queue.folder(job)
    record = record_of(folder) or {}
    os.kill(record["shim"], signal.SIGKILL)
    other = queue.add("-n", "1", "--", "cuda_check")
    looks = []
    while numbers_inside(folder):
        state, holders = queue.world.info(other)["state"], queue.holders(key)
        if numbers_inside(folder):
            looks.append((state, holders))
        time.sleep(0.2)
    expect(len(looks) > 1, looks)
    expect(all(state == "queued" for state, _ in looks), looks)
    expect(all(holders == [str(job)] for _, holders in looks), looks)
    lost, second = queue.ended(job), queue.ended(other)
    expect((lost["state"], second["state"]) == ("lost", "succeeded"), (lost["state"], second["state"]))
    expect("done" in queue.log(job), queue.log(job))
    seconds_until(lambda: site.docker("ps", "-aq") == "", "the container is removed")
    return {"looks": len(looks), "why": lost["message"]}


def _everything(site: Site, queue: Queue) -> Any:
    """kill -9 of all of ours: the card is not given away, and `dibs kill` by the next daemon ends the container"""
    job = queue.holds(120)
    key, folder = queue.card_of(job), queue.folder(job)
    record = record_of(folder) or {}
    daemon = int(Path(queue.world.environment["DIBS_STATE"], "queue", "lock").read_text())
    for pid in (daemon, record["shim"], record["pid"]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    without = _said(queue, "gpus")  # this command starts no daemon
    run = [sys.executable, "-m", "dibs", "run", "--", "true"]
    told = queue.world.folder / "run.stderr"
    with told.open("wb") as stderr:
        waiting = subprocess.Popen(run, env=queue.world.environment, stdout=subprocess.DEVNULL, stderr=stderr)
    time.sleep(4)
    expect(numbers_inside(folder), "the container has ended with its supervisor")
    expect(waiting.poll() is None, ("`dibs run` did not wait for the card", told.read_text(), without))
    seconds_until(lambda: queue.world.info(job)["state"] == "running", "a new daemon")
    seconds_until(lambda: str(job) in queue.holders(key), "the card is locked again")
    queue.ends(job)
    killed = queue.ended(job)
    expect(killed["state"] == "cancelled", killed)
    seconds_until(lambda: waiting.poll() is not None, "`dibs run` gets the card", 30)
    expect(waiting.returncode == 0, waiting.returncode)
    seconds_until(lambda: site.docker("ps", "-aq") == "", "the container is removed")
    return {"without a daemon": without, "dibs run said": told.read_text().strip()}


def _engines_own(site: Site, queue: Queue) -> Any:
    """kill -9 of containerd's shim: the card is kept as long as a process of the container is left"""
    job = queue.holds(20)
    key, folder = queue.card_of(job), queue.folder(job)
    name = site.docker("ps", "--format", "{{.ID}}", "--no-trunc")
    found = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _is_shim_of(pid, name)]
    expect(len(found) == 1, found)
    os.kill(int(found[0]), signal.SIGKILL)
    other = queue.add("-n", "1", "--", "cuda_check")
    looks = []
    while numbers_inside(folder):
        state = queue.world.info(other)["state"]
        if numbers_inside(folder):
            looks.append((state, queue.card(key)["state"]))
        time.sleep(0.2)
    expect(all(state == "queued" for state, _ in looks), looks)
    first, second = queue.ended(job), queue.ended(other)
    expect(second["state"] == "succeeded", second)
    seconds_until(lambda: site.docker("ps", "-aq") == "", "the container is removed")
    return {"looks": len(looks), "state": first["state"], "why": first["message"]}


def _is_shim_of(pid: str, name: str) -> bool:
    words = _words_of(pid)
    return words[0].endswith("containerd-shim-runc-v2") and name in words


def _words_of(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def _nothing_is_left(site: Site) -> Any:
    left = site.docker("ps", "-aq")
    expect(not left, site.docker("ps", "-a"))
    alive = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _words_of(pid)[0].endswith("cuda_check")]
    expect(not alive, alive)
    return {"told to NVIDIA's hook": site.cards_given()}


def _said(queue: Queue, *words: str) -> str:
    return queue.world.dibs(*words, may_fail=True).strip()


CHECKS = (_one_card, _no_card, _use, _shim, _everything, _engines_own)


def _mounts_of_our_own(scratch: Path, driver: str) -> None:
    """From now on a copy of /etc is seen by this process and those that it starts, and by no other."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *values: Any) -> None:
        if getattr(libc, name)(*values) != 0:
            raise SystemExit(f"{name}: {os.strerror(ctypes.get_errno())}; this needs root")

    copy = scratch / "etc"
    subprocess.run(["cp", "-a", "/etc", copy], check=True)
    call("unshare", _NEW_NAMESPACE)
    call("mount", None, b"/", None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None)
    call("mount", os.fsencode(copy), b"/etc", None, ctypes.c_ulong(_BIND), None)
    # The daemon of dibs gets no LD_LIBRARY_PATH: it finds NVML as every program does.
    ldconfig = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "ldconfig"
    known = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
    if "libnvidia-ml.so.1" not in known:
        Path("/etc/ld.so.conf.d/nvidia-of-this-check.conf").write_text(f"{driver}\n")
        subprocess.run([ldconfig, "-X"], check=False)


def _cgroups() -> list[str]:
    """Which are mounted; the old ones are mounted where there are none, for these processes only."""
    found = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines() if "cgroup" in line]
    if not any(kind.startswith("cgroup") for _, kind in found):
        subprocess.run(["mount", "-t", "tmpfs", "cgroup", "/sys/fs/cgroup"], check=False)
        for name in _CGROUPS:
            place = f"/sys/fs/cgroup/{name}"
            os.makedirs(place, exist_ok=True)
            subprocess.run(["mount", "-t", "cgroup", "-o", name, "cgroup", place], check=False)
        found = [["mounted by this program", "cgroup"]]
    return [f"{kind} {path}" for path, kind in found]


if __name__ == "__main__":
    sys.exit(main())
