"""Container engines of our own for tests: podman's storage and a dockerd in one folder, and an image of busybox.

No registry is needed: the image is made from Debian's static busybox. Apptainer is a stand-in that mounts and
changes the root as it does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from stories.outside import wait_until

IMAGE = "dibs-test"
_PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
_NEEDED = ("podman", "docker", "dockerd", "runc", "busybox", "unshare")
_APPLETS = ("cat", "echo", "env", "false", "grep", "head", "id", "kill", "ls", "pwd", "sed", "seq", "sh", "sleep")
_APPLETS += ("test", "touch", "true", "wc")
# Stands in for NVIDIA's: notes which cards docker was told to give to a container.
_HOOK = """#!/bin/sh
bundle=$(sed 's/.*"bundle":"\\([^"]*\\)".*/\\1/')
grep -o 'NVIDIA_VISIBLE_DEVICES=[^"]*' "$bundle/config.json" >> "$(dirname "$0")/given"
"""
_CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


def missing_programs() -> list[str]:
    return [name for name in _NEEDED if shutil.which(name, path=_PATH) is None]


class PrivateEngines:
    """Podman, docker, runc and a stand-in for apptainer, with the same image. Docker starts when it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.pathsep.join((str(folder / "bin"), _PATH)),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "DOCKER_HOST": f"unix://{folder}/docker.sock",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "STAND_IN_IMAGE": str(folder / "image.sif"),
        }
        self._dockerd: subprocess.Popen[bytes] | None = None
        self._ready: set[str] = set()
        (folder / "bin").mkdir(parents=True)
        (folder / "containers.conf").write_text(_CONTAINERS_CONF)
        storage = f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/podman-run"\ngraphroot = "{folder}/podman"\n'
        (folder / "storage.conf").write_text(storage)
        self._make_root(folder / "bundle" / "rootfs")
        (folder / "nvidia").mkdir()
        hook = folder / "nvidia" / "nvidia-container-runtime-hook"
        hook.write_text(_HOOK)
        hook.chmod(0o755)

    def image_for(self, engine: str, name: str = IMAGE) -> str:
        """The name or the path of the image for this engine, which is ready to be used; also by another name."""
        if engine not in self._ready:
            getattr(self, f"_prepare_{engine}")()
            self._ready.add(engine)
        if name != IMAGE:
            self.ask(engine, "tag", IMAGE, name)
            return name
        paths = {"runc": str(self.folder / "bundle"), "apptainer": str(self.folder / "image.sif")}
        return paths.get(engine, IMAGE)

    def ask(self, *words: str) -> str:
        """What a command of an engine prints."""
        done = subprocess.run(
            words, env=self.environment | {"HOME": "/root"}, capture_output=True, text=True, check=False
        )
        return done.stdout

    @property
    def path_of_nvidias_hook(self) -> str:
        return str(self.folder / "nvidia")

    def cards_given(self) -> list[str]:
        """What the hook was told, container after container."""
        given = self.folder / "nvidia" / "given"
        return given.read_text().splitlines() if given.exists() else []

    def names(self, engine: str) -> list[str]:
        """The containers of jobs that this engine knows, ended ones too."""
        if engine not in ("podman", "docker"):
            return []
        return self.ask(engine, "ps", "--all", "--filter", "name=dibs-", "--format", "{{.Names}}").split()

    def stop(self) -> None:
        if self._dockerd is not None:
            self._dockerd.terminate()
            self._dockerd.wait(30)
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if (path := line.split()[1]).startswith(str(self.folder)):
                subprocess.run(["umount", "-l", path], check=False)

    def _make_root(self, root: Path) -> None:
        for name in ("bin", "etc", "proc", "dev", "sys", "tmp"):
            (root / name).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        (root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
        busybox = shutil.which("busybox", path=_PATH)
        assert busybox is not None
        shutil.copy(busybox, root / "bin" / "busybox")
        for name in _APPLETS:
            (root / "bin" / name).symlink_to("busybox")
        python = root / "bin" / "python"  # of the examples in the documentation
        python.write_text('#!/bin/sh\necho "python $*"\n')
        python.chmod(0o755)
        subprocess.run(["tar", "-C", root, "-cf", self.folder / "image.tar", "."], check=True)

    def _prepare_podman(self) -> None:
        self._import("podman")

    def _prepare_docker(self) -> None:
        options = ["--iptables=false", "--bridge=none", "--storage-driver=vfs"]
        places = [f"--{name}={self.folder}/{name}" for name in ("data-root", "exec-root", "pidfile")]
        with (self.folder / "dockerd.log").open("wb") as log:
            self._dockerd = subprocess.Popen(
                ["dockerd", *options, *places, "--host", self.environment["DOCKER_HOST"]],
                env={"PATH": f"{self.path_of_nvidias_hook}:{_PATH}", "HOME": "/root"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(
            lambda: self.ask("docker", "info", "--format", "{{.ServerVersion}}").strip(),
            show=lambda: (self.folder / "dockerd.log").read_text()[-2000:],
        )
        self._import("docker")

    def _import(self, engine: str) -> None:
        environment = self.environment | {"HOME": "/root"}
        archive = str(self.folder / "image.tar")
        subprocess.run([engine, "import", archive, IMAGE], env=environment, check=True, capture_output=True)

    def _prepare_runc(self) -> None:
        subprocess.run(["runc", "spec"], cwd=self.folder / "bundle", env=self.environment, check=True)

    def _prepare_apptainer(self) -> None:
        subprocess.run(["cp", "-a", self.folder / "bundle" / "rootfs", self.folder / "image.sif"], check=True)
        stand_in = self.folder / "bin" / "apptainer"
        source = Path(__file__).with_name("stand_in_apptainer.py").read_text()
        stand_in.write_text(f"#!{sys.executable} -IS\n{source}")
        stand_in.chmod(0o755)
