"""A stand-in for apptainer: `exec` mounts folders in a mount namespace and changes the root; `pull` makes a file.

An image is a folder with a root file system; what is pulled is a copy of $STAND_IN_IMAGE. Like apptainer it passes
its environment on, but for PATH.
"""

import csv
import os
import subprocess
import sys


def main(words: list[str]) -> None:
    if words[0] == "pull":
        _pull(words[1:])
    elif words[0] == "exec":
        os.execvp("unshare", ["unshare", "-m", sys.executable, "-IS", __file__, "inside", *words[1:]])
    elif words[0] == "inside":
        _inside(words[1:])


def _pull(words: list[str]) -> None:
    force, path, source = words
    assert force == "--force" and source.startswith("docker://"), words
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run(["cp", "-a", os.environ["STAND_IN_IMAGE"], path], check=True)


def _inside(words: list[str]) -> None:
    mounts, workdir = [], "/"
    while words[0].startswith("--"):
        option = words.pop(0)
        if option == "--pwd":
            workdir = words.pop(0)
        elif option == "--mount":
            mounts.append(next(csv.reader([words.pop(0)])))
        elif option == "--env":
            name, _, value = words.pop(0).partition("=")
            os.environ[name] = value
        else:
            assert option in ("--nv", "--rocm"), option
            os.environ["STAND_IN_CARDS"] = option
    image = words.pop(0)
    if not os.path.isdir(image):
        sys.exit(f"FATAL: could not open image {image}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for parts in [["type=bind", "src=/proc", "dst=/proc"], ["type=bind", "src=/dev", "dst=/dev"], *mounts]:
        said = dict(part.partition("=")[::2] for part in parts)
        target = f"{image}{said['dst']}"
        os.makedirs(target, exist_ok=True)
        subprocess.run(["mount", "--rbind", said["src"], target], check=True)
        if "readonly" in said:
            subprocess.run(["mount", "-o", "remount,ro,bind", target], check=True)
    os.chroot(image)
    os.chdir(workdir)
    os.environ["PATH"] = "/bin"
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.exit(f"FATAL: {words[0]}: {error.strerror}")


main(sys.argv[1:])
