"""What is refused at once, and with which sentence; which engine is chosen; when an image is pulled."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dibs.containers.admission import admitted, missing_image
from dibs.containers.commands import EngineAnswer
from dibs.containers.host import read_host
from dibs.errors import BadInput
from dibs.model.jobs import Command, Request


def a_request(**fields: object) -> Request:
    return Request(command=Command.exact(["true"]), **{"image": "an/image", **fields})  # type: ignore[arg-type]


def with_programs(folder: Path, *names: str) -> Mapping[str, str]:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "HOME": "/root"}


@pytest.mark.parametrize(
    ("there", "chosen"), [(("docker", "podman"), "podman"), (("docker",), "docker"), (("apptainer",), "apptainer")]
)
def test_the_engine_is_what_is_there(tmp_path: Path, there: tuple[str, ...], chosen: str) -> None:
    assert admitted(a_request(), with_programs(tmp_path, *there)).container_engine == chosen


def test_an_engine_that_was_named_goes_before_the_setting_and_what_is_there(tmp_path: Path) -> None:
    environ = with_programs(tmp_path, "podman", "docker", "apptainer")

    by_setting = admitted(a_request(), environ, default_engine="docker")
    by_option = admitted(a_request(container_engine="apptainer"), environ, default_engine="docker")

    assert (by_setting.container_engine, by_option.container_engine) == ("docker", "apptainer")


def test_the_kind_of_an_image_chooses_the_engine(tmp_path: Path) -> None:
    environ = with_programs(tmp_path, "podman", "apptainer", "runc")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "config.json").write_text("{}")

    bundle = admitted(a_request(image="bundle", workdir=str(tmp_path)), environ, default_engine="podman")
    file = admitted(a_request(image="torch.sif", workdir=str(tmp_path)), environ, default_engine="podman")
    address = admitted(a_request(image="docker://torch"), environ, default_engine="podman")

    assert (bundle.container_engine, bundle.image) == ("runc", f"{tmp_path}/bundle")
    assert (file.container_engine, file.image) == ("apptainer", f"{tmp_path}/torch.sif")
    assert address.container_engine == "apptainer"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"container_engine": "docker"}, "there is no docker here"),
        ({"workdir": "/no/such"}, "podman cannot mount /no/such: it is not there"),
        ({"mounts": ("/no/data:/data",)}, "podman cannot mount /no/data"),
        ({"workdir": "/tmp", "mounts": ("/tmp:/\udcff",)}, ""),
        ({"image": "", "mounts": ("/data:/data",)}, "--mount is for a job in a container"),
        ({"image": "", "image_pull": "always"}, "--image-pull is for a job in a container"),
        ({"image": "--help"}, "cannot use '--help' as an image"),
        ({"warm": ("torch",)}, "a warm process runs outside of containers"),
        ({"command": Command.exact(["python", "/x/dibs/api/work.py", "--call", "/f"])}, "cannot call a Python"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(
    tmp_path: Path, fields: dict[str, object], sentence: str
) -> None:
    environ = with_programs(tmp_path, "podman")
    request = Request(**{"command": Command.exact(["true"]), "image": "an/image", **fields})  # type: ignore[arg-type]

    if not sentence:
        assert admitted(request, environ)
        return
    with pytest.raises(BadInput, match=sentence) as refused:
        admitted(request, environ)

    assert refused.value.remedy


def test_without_any_engine_the_sentence_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no podman, docker or apptainer here"):
        admitted(a_request(), with_programs(tmp_path))


def test_docker_on_another_machine_cannot_mount_folders_of_this_one(tmp_path: Path) -> None:
    environ = {**with_programs(tmp_path, "docker"), "DOCKER_HOST": "tcp://other:2375"}

    with pytest.raises(BadInput, match="cannot mount folders of this machine"):
        admitted(a_request(), environ)


class Answers:
    """An engine that has no image, or has it, or does not answer."""

    def __init__(self, code: int, said: str = "") -> None:
        self.answer = EngineAnswer(code, said)
        self.asked: list[Sequence[str]] = []

    def __call__(self, words: Sequence[str], environ: Mapping[str, str]) -> EngineAnswer:
        self.asked.append(words)
        return self.answer


@pytest.mark.parametrize(
    ("pull", "code", "pulls"),
    [("", 0, False), ("", 1, True), ("missing", 0, False), ("always", 0, True), ("never", 0, False)],
)
def test_when_an_image_is_pulled(pull: str, code: int, pulls: bool) -> None:
    need = missing_image(a_request(container_engine="podman", image_pull=pull), {}, Answers(code))

    assert (need is not None) == pulls
    if need is not None:
        job = need.as_job(a_request())
        assert job.command.words == ("podman", "pull", "an/image")
        assert job.wishes.num_gpus == 0
        assert job.image == ""


def test_an_image_that_may_not_be_pulled_is_refused_with_the_command_that_fetches_it() -> None:
    with pytest.raises(BadInput, match="is not here, and may not be pulled") as refused:
        missing_image(a_request(container_engine="docker", image_pull="never"), {}, Answers(1, "No such image"))

    assert refused.value.remedy == "`docker pull an/image` fetches it"


def test_a_name_that_no_image_can_have_is_refused_before_it_is_pulled() -> None:
    said = "Error response from daemon: invalid reference format: repository name must be lowercase"

    with pytest.raises(BadInput, match=r"cannot use 'Torch' as an image: .* must be lowercase"):
        missing_image(a_request(container_engine="docker", image="Torch"), {}, Answers(1, said))


@pytest.mark.parametrize(
    ("engine", "code", "said"),
    [
        ("docker", 1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?"),
        ("podman", 125, "Error: cannot set up namespace"),
        ("podman", -1, "podman did not answer within 30 seconds"),
    ],
)
def test_an_engine_that_cannot_answer_does_not_count_as_one_without_the_image(
    engine: str, code: int, said: str
) -> None:
    with pytest.raises(BadInput, match=f"cannot ask {engine}"):
        missing_image(a_request(container_engine=engine), {}, Answers(code, said))


def test_cards_are_found_in_cdi_files_of_either_kind(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(
        'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices:\n- name: "0"\n- name: GPU-1f\n- name: all\n'
    )
    (tmp_path / "other.json").write_text('{"kind": "vendor.com/nic", "devices": [{"name": "GPU-no"}]}')
    (tmp_path / "more.json").write_text('{"kind": "nvidia.com/gpu", "devices": [{"name": "MIG-7"}]}')

    found = read_host({"PATH": ""}, cdi_folders=[str(tmp_path)]).cdi_devices

    assert found == {"0", "GPU-1f", "all", "MIG-7"}
