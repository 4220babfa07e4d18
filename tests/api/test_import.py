"""`import dibs` is almost free, and everything else comes when it is asked for."""

import subprocess
import sys

import pytest

import dibs


def loaded_by(line: str) -> set[str]:
    said = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            f"import sys; before = set(sys.modules); {line}; print(*set(sys.modules) - before)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(said.stdout.split())


def test_the_package_alone_imports_nothing() -> None:
    # A shim is forked from a process that has imported it: every module here is paid for by every job.
    assert loaded_by("import dibs") == {"dibs"}


@pytest.mark.parametrize("name", ["submit", "Job", "report", "job", "Executor", "gpu"])
def test_the_client_needs_the_standard_library_only(name: str) -> None:
    found = {module.partition(".")[0] for module in loaded_by(f"import dibs; dibs.{name}")}

    assert found - {"dibs"} <= set(sys.stdlib_module_names) | {"sitecustomize"}


def test_reporting_from_a_job_does_not_load_the_client() -> None:
    found = loaded_by("import dibs; dibs.report(loss=1)")

    assert not {module for module in found if module.startswith("dibs.client")}


def test_every_promised_name_is_there_and_shown() -> None:
    for name in dibs.__all__:
        assert getattr(dibs, name) is not None
        assert name in dir(dibs)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'dibs' has no attribute 'sumbit'"):
        dibs.sumbit  # noqa: B018
