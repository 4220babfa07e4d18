"""A command in an image on a node: pyxis where the site has it, otherwise apptainer."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dibs.backends.protocol import Resources
from dibs.backends.slurm.backend import SlurmBackend, SlurmSettings
from dibs.backends.slurm.containers import contained
from dibs.backends.slurm.controller import Commands
from dibs.backends.slurm.sbatch import flags
from dibs.engine.remote.state import wanted_by
from dibs.errors import BackendMissing, BackendRefused
from dibs.model.jobs import Command, Request


def a_spec(tmp_path: Path, name: str, **image: Any) -> dict[str, Any]:
    captured = tmp_path / "environment.json"
    captured.write_text(json.dumps({"PATH": "/home/ann/bin", "PYTHONPATH": "/src", "LANG": "C"}))
    said = {"name": name, "engine": "", "mounts": ["/data:/data:ro"], "has_cards": True, **image}
    own = {"DIBS_METRICS": "/shared/1.1/metrics"}
    words = ["python", "train.py"]
    return {"words": words, "workdir": "/work", "env": own, "environment": str(captured), "image": said}


PYXIS = ("container-image", "container-mounts", "container-workdir", "container-env", "no-container-remap-root")


def test_pyxis_is_used_where_the_site_has_it(tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "ghcr.io/org/torch:2")
    spec["env"] |= {"PATH": "/mine", "SEED": "7"}

    made = contained(spec, "/shared/1.1", pyxis=PYXIS, cpus=4)

    assert made["words"] == [
        *("env", "-u", "PYTHONPATH", "srun", "--nodes=1", "--ntasks=1", "--cpus-per-task=4"),
        "--container-image=ghcr.io#org/torch:2",
        "--container-mounts=/work:/work,/shared/1.1:/shared/1.1,/data:/data:ro",
        "--container-workdir=/work",
        "--no-container-remap-root",
        "--container-env=DIBS_METRICS,LANG,SEED",
        *("env", "PATH=/mine", "python", "train.py"),
    ]
    assert made["env"] == {"DIBS_METRICS": "/shared/1.1/metrics", "SEED": "7"}  # srun is found by the node's path


def test_an_old_pyxis_is_told_what_it_knows(tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "docker://localhost/torch")

    words = contained(spec, "/shared/1.1", pyxis=PYXIS[:3])["words"]

    assert words[6] == "--container-image=localhost#torch"
    assert words[7].startswith("--container-mounts=")
    assert words[8:] == ["--container-workdir=/work", "python", "train.py"]


def test_other_options_of_pyxis_are_for_the_step(tmp_path: Path) -> None:
    more = {"container-remap-root": "", "no-container-mount-home": "", "container-name": "mine"}
    wanted = Resources(options=(*more.items(), ("partition", "gpu")))
    known = (*PYXIS, *more)

    words = contained(a_spec(tmp_path, "torch"), "/shared/1.1", pyxis=known, more=more)["words"]

    asked = ("--container-remap-root", "--no-container-mount-home", "--container-name=mine")
    assert set(asked) <= set(words) and "--no-container-remap-root" not in words
    assert "--partition=gpu" in flags(wanted) and set(asked).isdisjoint(flags(wanted))
    with pytest.raises(BackendRefused, match="this cluster's srun does not know it"):
        contained(a_spec(tmp_path, "torch"), "/shared/1.1", pyxis=PYXIS, more=more)


@pytest.mark.parametrize("mount", ["/a b", "/a:/b$c", "/a,b", "/it's"])
def test_what_pyxis_cannot_be_told_to_mount_is_refused(tmp_path: Path, mount: str) -> None:
    spec = a_spec(tmp_path, "torch", mounts=[mount])

    with pytest.raises(BackendRefused, match="pyxis cannot mount"):
        contained(spec, "/shared/1.1", pyxis=PYXIS)


@pytest.mark.parametrize(
    ("wish", "root", "odd"),
    [
        ({"mounts": ("/data", "/a:/b$c:ro")}, "root", "/b$c"),
        ({"workdir": "/my work"}, "root", "/my work"),
        ({"workdir": "/work"}, "a root", "/a root"),
    ],
)
def test_a_folder_that_pyxis_cannot_mount_is_refused_when_the_job_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: dict[str, Any], root: str, odd: str
) -> None:
    monkeypatch.setattr("dibs.backends.slurm.controller._FOLDERS", ())
    srun = tmp_path / "srun"
    slurm = SlurmBackend(SlurmSettings(root=f"/{root}"), Commands({"PATH": str(tmp_path)}))
    request = Request(command=Command.line("true"), on="slurm", image="torch", **wish)
    elsewhere = replace(request, container_engine="apptainer")
    srun.write_text("#!/bin/sh\necho '      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH'\n")
    srun.chmod(0o755)

    with pytest.raises(BackendRefused) as refused:
        slurm.check(wanted_by(request))
    with pytest.raises(BackendMissing, match="no sbatch"):  # the next question
        slurm.check(wanted_by(elsewhere))

    assert refused.value.message.startswith(f"pyxis cannot mount '{odd}': it takes no blanks")
    assert wanted_by(replace(request, image="")).container_paths == ()


def test_apptainer_is_used_where_there_is_no_pyxis(tmp_path: Path) -> None:
    made = contained(a_spec(tmp_path, "org/torch:2"), "/shared/1.1", pyxis=())

    words = made["words"]
    assert words[:5] == ["env", "-u", "PYTHONPATH", "apptainer", "exec"]
    assert "--nv" in words
    assert "type=bind,src=/shared/1.1,dst=/shared/1.1" in words
    assert words[-3:] == ["docker://org/torch:2", "python", "train.py"]


def test_apptainer_is_used_where_it_was_asked_for(tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "/images/torch.sif", engine="apptainer", has_cards=False)

    words = contained(spec, "/shared/1.1", pyxis=PYXIS)["words"]

    assert words[-3:] == ["/images/torch.sif", "python", "train.py"]
    assert "--nv" not in words


def test_a_command_without_an_image_stays_as_it_is() -> None:
    spec = {"words": ["true"]}

    assert contained(spec, "/shared/1.1", pyxis=PYXIS) == spec
