"""When an attempt ran, from a record and a row whose clocks may be wrong; all times are those of a true clock."""

from dataclasses import replace

import pytest

from backends.test_slurm_words import a_row
from dibs.backends.slurm.squeue import SqueueRow
from dibs.backends.slurm.times import times

# Given a node at 100, prepared there for 30 seconds, ran for 50, and noted as over two seconds later.
BEGAN, ENDED = 130.0, 180.0


def record(*, node_ahead: float = 0.0) -> dict[str, object]:
    return {"state": "ended", "began": BEGAN + node_ahead, "ended": ENDED + node_ahead, "seconds": 50.0}


def row(*, controller_ahead: float = 0.0) -> SqueueRow:
    return a_row(state="FAILED", start=100.0 + controller_ahead, ended=182.0 + controller_ahead)


def test_the_shim_knows_best() -> None:
    assert times(row(), record(), 0.0) == (BEGAN, ENDED)
    assert times(None, record(), 0.0) == (BEGAN, ENDED)


@pytest.mark.parametrize("node_ahead", [-600.0, 600.0])
@pytest.mark.parametrize("controller_ahead", [-3600.0, 3600.0])
def test_the_clocks_of_a_node_and_of_the_controller_may_be_wrong(
    node_ahead: float, controller_ahead: float
) -> None:
    began, ended = times(row(controller_ahead=controller_ahead), record(node_ahead=node_ahead), controller_ahead)

    # As exact as Slurm: after it gave the node, before it noted the end.
    assert began is not None and ended is not None and ended - began == 50.0
    assert 100.0 <= began <= BEGAN + 2.0


def test_without_a_record_slurm_is_believed_and_its_guess_of_an_end_is_not() -> None:
    assert times(row(), None, 0.0) == (100.0, 182.0)
    assert times(replace(row(), state="RUNNING"), None, 0.0) == (100.0, None)
    assert times(replace(row(), state="PENDING"), None, 0.0) == (None, None)
    assert times(None, None, 0.0) == (None, None)
