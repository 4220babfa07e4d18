"""Which steps come next, from how the processes stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.gpus.cuda_checkpoint import ProcessState
from dibs.supervise.suspension_steps import MoveAct, Seen, refusal_of, steps_to_resume, steps_to_suspend

RUNNING, LOCKED = Seen(ProcessState.RUNNING), Seen(ProcessState.LOCKED)
OFF = Seen(ProcessState.CHECKPOINTED)
WORKER, STOPPED = Seen(), Seen(is_stopped=True)
SILENT = Seen(None, is_stopped=True)

# What each step makes of a process, where a driver and a kernel do as they say.
_BECOMES = {
    MoveAct.LOCK: LOCKED,
    MoveAct.CHECKPOINT: OFF,
    MoveAct.RESTORE: LOCKED,
    MoveAct.UNLOCK: RUNNING,
    MoveAct.STOP: STOPPED,
    MoveAct.CONTINUE: WORKER,
}
trees = st.dictionaries(st.integers(1, 9), st.sampled_from([RUNNING, LOCKED, OFF, WORKER, STOPPED]))


@pytest.mark.parametrize(
    ("tree", "suspending", "resuming"),
    [
        ({}, [], []),
        ({1: RUNNING, 2: WORKER}, [(MoveAct.LOCK, 1)], []),
        ({1: LOCKED, 2: RUNNING, 3: WORKER}, [(MoveAct.LOCK, 2)], [(MoveAct.UNLOCK, 1)]),
        ({1: LOCKED, 2: WORKER}, [(MoveAct.STOP, 2)], [(MoveAct.UNLOCK, 1)]),
        ({1: LOCKED, 2: STOPPED}, [(MoveAct.CHECKPOINT, 1)], [(MoveAct.CONTINUE, 2)]),
        ({1: OFF, 2: LOCKED, 3: STOPPED}, [(MoveAct.CHECKPOINT, 2)], [(MoveAct.RESTORE, 1)]),
        ({1: OFF, 2: OFF, 3: STOPPED}, [], [(MoveAct.RESTORE, 1), (MoveAct.RESTORE, 2)]),
        ({1: WORKER, 2: WORKER}, [(MoveAct.STOP, 1), (MoveAct.STOP, 2)], []),
        ({1: STOPPED}, [], [(MoveAct.CONTINUE, 1)]),
        ({1: SILENT, 2: OFF}, [], [(MoveAct.CONTINUE, 1)]),  # it would not answer the restore
    ],
)
def test_the_next_steps_follow_from_where_things_stand(tree, suspending, resuming):
    assert (steps_to_suspend(tree), steps_to_resume(tree)) == (suspending, resuming)


@given(trees, st.lists(st.booleans(), max_size=6))
def test_whatever_was_begun_before_it_comes_to_its_end_in_either_direction(tree, directions):
    for is_suspended in [*directions, True, False]:
        for _ in range(6):
            for act, pid in (steps_to_suspend if is_suspended else steps_to_resume)(tree):
                tree = {**tree, pid: _BECOMES[act]}
        if not is_suspended:
            continue
        assert set(tree.values()) <= {OFF, STOPPED}

    assert set(tree.values()) <= {RUNNING, WORKER}


@given(trees)
def test_nothing_runs_beside_a_process_that_is_being_moved(tree):
    for steps in (steps_to_suspend(tree), steps_to_resume(tree)):
        acts = {act for act, _ in steps}
        assert len(acts) <= 1
        if acts == {MoveAct.CHECKPOINT}:
            assert not {RUNNING, WORKER} & set(tree.values())
        if acts == {MoveAct.UNLOCK}:
            assert not {OFF, STOPPED} & set(tree.values())


@pytest.mark.parametrize(
    ("tree", "code"),
    [
        ({1: RUNNING, 2: WORKER}, ""),
        ({1: RUNNING, 2: RUNNING}, "several-processes"),
        ({1: RUNNING, 2: Seen(is_ours=False)}, "not-permitted"),
        ({1: Seen(ProcessState.RUNNING, shares_memory=True)}, "cuda-ipc"),
        ({1: SILENT}, "stopped"),
        ({1: SILENT, 2: RUNNING}, "stopped"),
        ({1: SILENT, 2: LOCKED}, ""),  # a helper before has stopped it
        ({1: STOPPED, 2: RUNNING}, ""),
        ({1: Seen(ProcessState.FAILED)}, "failed"),
        ({1: Seen(ProcessState.GONE)}, "failed"),
    ],
)
def test_what_must_not_be_suspended_is_refused(tree, code):
    refusal = refusal_of(tree, may_have_several=False)

    assert (refusal.code if refusal else "") == code


def test_an_owner_may_say_that_several_processes_share_no_memory():
    shared = Seen(ProcessState.RUNNING, shares_memory=True)

    answers = [
        refusal_of(tree, may_have_several=True) for tree in ({1: RUNNING, 2: RUNNING}, {1: shared, 2: shared})
    ]

    assert [answer and answer.code for answer in answers] == [None, "cuda-ipc"]
