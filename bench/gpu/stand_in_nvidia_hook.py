"""Stands in for NVIDIA's hook for OCI runtimes, which dockerd calls for `--gpus`: it gives a container its cards.

Like NVIDIA's it enters the container's mounts before its root is changed, makes the device files there, allows
them, and puts the driver's libraries where `ld.so` finds them. It is told what to give by a file beside it, which
`docker_on_gpu.py` writes: the device files, and those of each card by its UUID and number.
"""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

_LIBRARIES = "/usr/local/nvidia/lib64"  # the image's LD_LIBRARY_PATH names it
_DETACH = r"""
import ctypes, os, struct, sys
# bpf(2): the program that refuses devices is taken off. NVIDIA's hook replaces it by one that knows the card.
cgroup = os.open(sys.argv[1], os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, packed):
    buffer = ctypes.create_string_buffer(packed.ljust(128, b"\0"))
    return libc.syscall(321, command, buffer, 128), buffer.raw
ids = (ctypes.c_uint32 * 64)()
_, answer = bpf(16, struct.pack("IIIIQI", cgroup, 6, 0, 0, ctypes.addressof(ids), 64))
for number in ids[: struct.unpack_from("I", answer, 24)[0]]:
    program, _ = bpf(13, struct.pack("III", number, 0, 0))
    if bpf(9, struct.pack("IIII", cgroup, program, 6, 0))[0] < 0:
        sys.exit(f"cannot take off program {number}: {os.strerror(ctypes.get_errno())}")
"""


def main() -> None:
    state = json.load(sys.stdin)
    with Path(state["bundle"], "config.json").open() as file:
        config = json.load(file)
    variables = dict(line.partition("=")[::2] for line in config["process"]["env"])
    wanted = variables.get("NVIDIA_VISIBLE_DEVICES", "")
    here = Path(sys.argv[0]).resolve().parent
    with (here / "given").open("a") as given:
        given.write(f"{wanted}\n")
    cards = json.loads((here / "cards.json").read_text())
    names = cards["by_name"].keys() if wanted == "all" else filter(None, wanted.split(","))
    nodes = [*cards["shared"], *(node for name in names for node in cards["by_name"][name])]
    root = config["root"]["path"]
    root = root if root.startswith("/") else f"{state['bundle']}/{root}"
    pid = str(state["pid"])
    commands = [f"mkdir -p '{root}{_LIBRARIES}'"]
    for node in dict.fromkeys(nodes):
        about = os.stat(node)
        numbers = f"{os.major(about.st_rdev)} {os.minor(about.st_rdev)}"
        _allow(pid, numbers.replace(" ", ":"))
        if stat.S_ISCHR(about.st_mode):
            path = f"{root}{node}"
            commands.append(f"mkdir -p '{os.path.dirname(path)}'; mknod -m 666 '{path}' c {numbers}")
    for library in cards["libraries"]:
        place = f"{root}{_LIBRARIES}/{os.path.basename(library)}"
        commands.append(f"touch '{place}'; mount --bind '{library}' '{place}'")
    enter = ["nsenter", "--mount", "--target", pid, "--", "sh", "-ec", "\n".join(commands)]
    subprocess.run(enter, check=True)


def _allow(pid: str, numbers: str) -> None:
    """Both kinds of cgroups: a file of the controller for devices, or a program that refuses them."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        old, new = f"/sys/fs/cgroup/devices{path}/devices.allow", f"/sys/fs/cgroup{path}"
        if "devices" in controllers.split(",") and os.path.exists(old):
            Path(old).write_text(f"c {numbers} rwm\n")
        elif not controllers and os.path.exists(f"{new}/cgroup.procs"):
            subprocess.run([sys.executable, "-c", _DETACH, new], check=True)


if __name__ == "__main__":
    main()
