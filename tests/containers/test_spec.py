"""What an engine is told, as plain values: variables, folders, cards."""

import json
from fractions import Fraction
from typing import Any

import pytest

from dibs.containers.engines import ContainerHost
from dibs.containers.registry import ENGINES
from dibs.containers.spec import contained, container_name
from dibs.errors import BadInput
from dibs.model.gpus import Claim, gpu_environment
from dibs.model.jobs import Command, Request

FOLDER = "/state/attempts/0/17.1"
HOST = ContainerHost(uid=1000, gid=100, groups=(100, 44), cache="/cache", inits=frozenset({"podman", "docker"}))
CAPTURED = {"PATH": "/home/ann/venv/bin", "PYTHONPATH": "/src", "HOME": "/home/ann", "WANDB_KEY": "s3cret"}


def a_claim(index: int, key: str = "") -> Claim:
    return Claim(gpu=key or f"GPU-{index}", index=index, share=Fraction(1))


def told(
    engine: str, host: ContainerHost = HOST, *, claims: tuple[Claim, ...] = (), env: Any = None, **fields: Any
) -> tuple[list[str], dict[str, Any]]:
    """The words of the engine, and the spec that they are in."""
    request = Request(command=Command.exact(["python", "train.py"]), image="an/image", env=env or (), **fields)
    own = {**gpu_environment(claims), "DIBS_METRICS": f"{FOLDER}/metrics", **dict(request.env)}
    spec = {"workdir": "/work", "env": own, "words": request.command.words, "umask": 0o027}
    made, _ = contained(
        spec,
        request,
        ENGINES[engine],
        host,
        name="dibs-q-17.1",
        folder=FOLDER,
        words=request.command.words,
        captured=CAPTURED,
        claims=claims,
        config=json.dumps({"process": {"env": ["PATH=/bin"]}, "root": {"path": "rootfs"}}),
    )
    return list(made["words"]), made


def after(words: list[str], option: str) -> list[str]:
    """All that stands behind this option."""
    return [words[place + 1] for place, word in enumerate(words) if word == option]


def test_a_container_is_named_after_its_queue_and_its_attempt() -> None:
    assert container_name("/state", 17, 1) == container_name("/state", 17, 1)
    assert container_name("/state", 17, 1).endswith("-17.1")
    assert container_name("/state", 17, 1) != container_name("/other", 17, 1)


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_no_value_of_a_variable_is_on_the_command_line_but_what_the_engine_must_not_have(engine: str) -> None:
    words, spec = told(engine, env=(("PATH", "/opt/bin"), ("SEED", "1")))

    passed = after(words, "--env")
    assert {"WANDB_KEY", "SEED", "DIBS_METRICS", "PATH=/opt/bin", "HOME=/tmp"} <= set(passed)
    assert not {"PATH", "PYTHONPATH", "HOME"} & set(passed)
    assert "s3cret" not in " ".join(words)
    assert spec["env"]["SEED"] == "1" and "PATH" not in spec["env"]


def test_home_is_the_users_own_where_the_container_sees_it() -> None:
    words, _ = told("docker", mounts=("/home/ann:/home/ann",))

    assert "HOME=/home/ann" in after(words, "--env")


@pytest.mark.parametrize(
    ("engine", "host", "user"),
    [
        ("podman", HOST, ["--user", "1000:100", "--userns=keep-id"]),
        ("docker", HOST, ["--user", "1000:100", "--group-add=44"]),
        ("docker", ContainerHost(uid=1000, gid=100, docker_is_rootless=True), []),
    ],
)
def test_the_user_inside_is_the_user_outside(engine: str, host: ContainerHost, user: list[str]) -> None:
    words, _ = told(engine, host)

    found = [word for word in words if word.startswith(("--user", "--group-add"))]
    assert found == [word for word in user if word.startswith("--")]
    assert after(words, "--user") == user[1:2]


@pytest.mark.parametrize(
    ("engine", "host"),
    [("docker", HOST), ("podman", HOST), ("podman", ContainerHost(uid=1000, has_mqueue=False))],
)
def test_the_shared_memory_is_that_of_the_machine(engine: str, host: ContainerHost) -> None:
    words, _ = told(engine, host)

    assert "--ipc=host" in words or "type=bind,src=/dev/shm,dst=/dev/shm" in after(words, "--mount")
    assert ("--ipc=host" in words) == host.has_mqueue


@pytest.mark.parametrize(
    ("engine", "host", "options", "inside"),
    [
        ("podman", {"cdi_devices": frozenset({"GPU-2", "GPU-5"})}, "--device nvidia.com/gpu=GPU-2", "0,1"),
        ("podman", {"cdi_devices": frozenset({"2", "5"})}, "--device nvidia.com/gpu=5", "0,1"),
        ("docker", {"nvidia_hook": "/usr/bin/hook"}, '--gpus "device=GPU-2,GPU-5"', "0,1"),
        (
            "docker",
            {"nvidia_hook": "/hook", "docker_has_cdi": True, "cdi_devices": frozenset({"GPU-2", "GPU-5"})},
            "--device nvidia.com/gpu=GPU-5",
            "0,1",
        ),
        ("apptainer", {}, "--nv", "2,5"),
    ],
)
def test_the_variables_count_the_cards_as_the_program_sees_them(
    engine: str, host: dict[str, Any], options: str, inside: str
) -> None:
    words, spec = told(engine, ContainerHost(**host), claims=(a_claim(2), a_claim(5)))

    assert options in " ".join(words)
    assert spec["env"]["CUDA_VISIBLE_DEVICES"] == inside
    assert spec["env"]["GPU"] == ",".join(f"cuda{number}" for number in inside.split(","))
    assert spec["env"]["DIBS_GPUS"] == "2,5"  # as `dibs gpus` counts them


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_cards_of_amd_are_device_files(engine: str) -> None:
    words, spec = told(engine, claims=(a_claim(1, "AMD-1"),))

    assert after(words, "--device") == ["/dev/kfd", "/dev/dri"]
    assert spec["env"]["ROCR_VISIBLE_DEVICES"] == "1"  # all cards are there, and this hides the others


@pytest.mark.parametrize("engine", ["podman", "docker", "runc"])
def test_cards_that_the_engine_cannot_give_are_refused_with_what_to_do(engine: str) -> None:
    with pytest.raises(BadInput, match="cannot give a container its GPUs") as refused:
        told(engine, claims=(a_claim(0),))

    assert refused.value.remedy


def test_docker_without_root_needs_the_right_to_the_device() -> None:
    host = ContainerHost(
        uid=1000, docker_is_rootless=True, nvidia_hook="/hook", closed_devices=("/dev/nvidiactl",)
    )

    with pytest.raises(BadInput, match="you may not open /dev/nvidiactl"):
        told("docker", host, claims=(a_claim(0),))


@pytest.mark.parametrize("engine", ["podman", "docker", "apptainer"])
def test_without_a_card_none_is_given(engine: str) -> None:
    words, _ = told(engine, ContainerHost(nvidia_hook="/hook", cdi_devices=frozenset({"GPU-0"})))

    assert not {"--device", "--gpus", "--nv", "--rocm"} & set(words)


def test_what_was_only_declared_is_no_card_to_give() -> None:
    words, spec = told("podman", claims=(a_claim(3, "index-3"),))

    assert "--device" not in words
    assert spec["env"]["CUDA_VISIBLE_DEVICES"] == "3"


def test_the_bundle_of_runc_has_the_command_and_the_hook_of_the_cards() -> None:
    request = Request(command=Command.exact(["python"]), image="/images/torch")
    made, files = contained(
        {"workdir": "/work", "env": {}, "words": ["python"], "umask": 0o022},
        request,
        ENGINES["runc"],
        ContainerHost(nvidia_hook="/hook"),
        name="dibs-q-17.1",
        folder=FOLDER,
        words=["python"],
        captured={"WANDB_KEY": "s3cret"},
        claims=(a_claim(4),),
        config=json.dumps(
            {
                "process": {"env": ["PATH=/bin"]},
                "root": {"path": "rootfs"},
                "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]},
            }
        ),
    )

    (text,) = files.values()
    config = json.loads(text)
    assert made["words"] == [
        "runc",
        "--root",
        f"{FOLDER}/runc",
        "run",
        "--bundle",
        f"{FOLDER}/bundle",
        "dibs-q-17.1",
    ]
    assert config["root"]["path"] == "/images/torch/rootfs"
    assert config["process"]["args"] == ["python"]
    assert {"PATH=/bin", "WANDB_KEY=s3cret", "NVIDIA_VISIBLE_DEVICES=GPU-4"} <= set(config["process"]["env"])
    assert config["linux"]["namespaces"] == [{"type": "mount"}]
    assert config["hooks"]["prestart"][0]["path"] == "/hook"
