"""How the end of an engine's client is read, without an engine: the client is a line for bash."""

from typing import Any

import pytest

from dibs.model.jobs import Cause
from dibs.policy.outcomes import outcome_of
from supervise.hands import Hands


def a_container(**facts: Any) -> dict[str, Any]:
    """What a spec says about a container: of an engine whose own processes wait for those inside."""
    return {
        "engine": "podman",
        "name": "dibs-q-1.1",
        "remove": ["true"],
        "state": ["echo", "exited 125 2026-11-18 01:00:00 +0000 UTC"],
        "has_own_pids": True,
        "has_init": True,
        "hands_signals_on": False,
        **facts,
    }


def run(hands: Hands, line: str, **facts: Any) -> dict[str, Any]:
    return hands.run(line, container=a_container(**facts), env={"DIBS_METRICS": f"{hands.root}/1.1/metrics"})


_ANSWERS = ["sh", "-c", "echo Error: No such container: dibs-q-1.1; exit 1"]
_NO_DAEMON = (125, None, "start")


@pytest.mark.parametrize(
    ("line", "facts", "end"),
    [
        ("exit 125", {}, (125, None, "")),  # the container was started: the code is its command's
        ("exit 125", {"state": ["echo", "created 125 0001-01-01T00:00:00Z"]}, (125, None, "start")),
        ("exit 127", {"state": _ANSWERS}, (127, None, "start")),
        ("echo 'docker: Cannot connect to the Docker daemon' >&2; exit 125", {"state": ["false"]}, _NO_DAEMON),
        ("exit 3", {"state": ["false"]}, (3, None, "")),
        ("exit 137", {}, (None, 9, "")),
        ("echo '[FATAL tini (7)] exec x failed: No such file' >&2; exit 127", {}, (127, None, "start")),
        ("echo 'ERROR (catatonit:6): failed to exec pid1: No such file' >&2; exit 1", {}, (127, None, "start")),
        ("echo 'ERROR (catatonit:6): failed to exec pid1' >&2; echo more >&2; exit 1", {}, (1, None, "")),
    ],
)
def test_the_end_of_the_client_is_that_of_the_command_or_of_the_engine(
    hands: Hands, line: str, facts: dict[str, Any], end: tuple[int | None, int | None, str]
) -> None:
    record = run(hands, line, **facts)

    assert (record["code"], record["signal"], record["by"]) == end
    assert "maxrss" not in record  # the client's is not the command's
    assert record["message"].startswith("podman could not start it") == (end[2] == "start")


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (125, ["false"]),  # dockerd was killed, and does not answer
        (125, ["echo", "exited 137 2026-11-18T01:00:00Z"]),  # it is there again, and has ended its containers
        (127, ["echo", "running 0 2026-11-18 01:00:00 +0000 UTC"]),  # conmon was killed
    ],
)
def test_an_engine_that_failed_while_the_command_ran_has_not_seen_its_end(
    hands: Hands, code: int, state: list[str]
) -> None:
    record = run(hands, f"echo unexpected EOF >&2; exit {code}", state=state)

    assert record["message"] == "its end was not seen: podman failed: unexpected EOF"
    assert (outcome_of(record).cause, outcome_of(record).exit_code) == (Cause.LOST, None)


def test_a_command_below_the_client_is_measured_with_it(hands: Hands) -> None:
    assert run(hands, "true", has_own_pids=False, state=[])["maxrss"] > 0


def test_a_container_that_cannot_be_removed_is_named_in_the_log(hands: Hands) -> None:
    attempt = hands.start(
        "true",
        container=a_container(remove=["sh", "-c", "echo it is stuck; exit 1"]),
        env={"DIBS_METRICS": f"{hands.root}/1.1/metrics"},
    )

    assert hands.record(attempt)["code"] == 0
    assert "its container could not be removed: it is stuck" in hands.log(attempt, "stderr")


def test_what_was_refused_when_it_was_prepared_is_a_start_error(hands: Hands) -> None:
    record = hands.run("true", refusal="podman cannot give a container its GPUs: CDI is not set up")

    assert (record["by"], record["message"]) == (
        "start",
        "cannot start bash: podman cannot give a container its GPUs: CDI is not set up",
    )
