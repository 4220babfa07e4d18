"""One word for how a node stands, whatever its own system calls it."""

import pytest

from dibs.backends.nodes import counts, in_words, node_object, standing
from dibs.backends.protocol import Node, NodeGpus


def a_node(
    *, used: int = 0, total: int = 2, cpus_used: int = 0, state: str = "idle", is_usable: bool = True
) -> Node:
    return Node(
        name="n1",
        state=state,
        is_usable=is_usable,
        gpus=(NodeGpus(type="a100", total=total, used=used),) if total else (),
        cpus=8,
        cpus_used=cpus_used,
    )


@pytest.mark.parametrize(
    ("node", "state"),
    [
        (a_node(), "free"),
        (a_node(used=1, cpus_used=1), "used"),
        (a_node(cpus_used=1), "used"),
        (a_node(used=2, cpus_used=2), "full"),
        (a_node(used=1, cpus_used=8), "full"),
        (a_node(total=0), "free"),
        (a_node(total=0, cpus_used=8), "full"),
        (a_node(used=2, state="down*", is_usable=False), "out"),
    ],
)
def test_a_node_is_free_used_full_or_out(node: Node, state: str) -> None:
    assert standing(node) == state
    assert node_object(node)["state"] == state


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("idle", "idle"),
        ("mixed", "partly in use"),
        ("allocated", "in use"),
        ("idle+drain", "drained"),
        ("allocated+drain", "draining"),
        ("mixed+drain+not_responding", "draining, does not answer"),
        ("down*", "down, does not answer"),
        ("down+drain", "drained, down"),
        ("idle~", "idle, asleep to save power"),
        ("IDLE+CLOUD+POWERED_DOWN", "idle, cloud, asleep to save power"),
        ("idle+planned", "idle, planned for a job"),
        ("something_new", "something new"),
        ("", ""),
    ],
)
def test_what_the_other_system_says_is_put_in_words(said: str, words: str) -> None:
    assert in_words(said) == words


def test_every_state_is_counted_also_one_that_no_node_is_in() -> None:
    found = counts([a_node(), a_node(), a_node(is_usable=False)])

    assert found == {"free": 2, "used": 0, "full": 0, "out": 1}
