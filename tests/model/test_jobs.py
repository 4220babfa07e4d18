"""Jobs as values."""

import os
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import pytest

from dibs.model.gpus import GPU_VARIABLES, Claim, gpu_environment
from dibs.model.jobs import ArrayTask, Cause, Command, Job, JobId, Outcome, Request, State, Wishes, changed


def claims(*indices):
    return [Claim(gpu=f"GPU-{index}", index=index, share=Fraction(1)) for index in indices]


def test_the_same_text_is_the_same_work_whatever_is_wished_for_it():
    plain = Request(command=Command.line("train"))
    wished = Request(
        command=Command.line("train"), wishes=Wishes(num_gpus=4), priority=3, retries=2, time_limit=60.0, name="x"
    )

    assert plain.content_key == wished.content_key


@pytest.mark.parametrize(
    "other",
    [
        Request(command=Command.line("train ")),
        Request(command=Command.line("train", "zsh")),
        Request(command=Command.line("train"), workdir="/data"),
        Request(command=Command.line("train"), env=(("SEED", "1"),)),
        Request(command=Command.line(os.fsdecode(b"train\xff"))),
    ],
)
def test_another_text_shell_folder_or_variable_is_other_work(other):
    plain = Request(command=Command.line("train"))

    assert plain.content_key != other.content_key


def test_words_are_shown_as_a_shell_would_need_them():
    command = Command.exact(["echo", "a b", "$HOME"])

    assert command.shown == "echo 'a b' '$HOME'"
    assert command.words == ("echo", "a b", "$HOME")


def test_a_job_sees_its_gpus_as_numbers_in_pci_order():
    environment = gpu_environment(claims(2, 5))

    assert environment["CUDA_VISIBLE_DEVICES"] == environment["DIBS_GPUS"] == "2,5"
    assert environment["GPU"] == "cuda2,cuda5"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_job_for_no_gpu_sees_none():
    environment = gpu_environment([])

    assert environment["CUDA_VISIBLE_DEVICES"] == environment["GPU"] == environment["DIBS_GPUS"] == ""


def test_what_is_over_is_over():
    over = {state for state in State if state.is_over}

    assert over == {State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.LOST}


def test_every_cause_leads_to_a_state_that_is_over():
    states = {cause: Outcome(cause=cause).state for cause in Cause}

    assert all(state.is_over and state is not State.SUCCEEDED for state in states.values())
    assert Outcome(exit_code=0).state is State.SUCCEEDED


def test_a_job_is_called_by_its_number_and_its_name():
    request = Request(command=Command.line("x"))
    jobs = [
        Job(id=JobId(7), request=request),
        Job(id=JobId(7), request=Request(command=request.command, name="lr")),
        Job(id=JobId(7), request=Request(command=request.command, array=ArrayTask(JobId(5), 2), name="lr")),
    ]

    assert [job.label for job in jobs] == ["7", "7 (lr)", "5_2 (lr)"]
    with pytest.raises(FrozenInstanceError):
        jobs[0].state = State.HELD


def test_a_part_of_a_card_is_called_by_its_uuid():
    environment = gpu_environment([Claim(gpu="MIG-7a", index=0, share=Fraction(1), address="MIG-7a")])

    assert environment["CUDA_VISIBLE_DEVICES"] == environment["DIBS_GPUS"] == "MIG-7a"


def test_a_card_with_an_address_is_called_by_it_and_keeps_its_number_for_us():
    environment = gpu_environment([Claim(gpu="GPU-1", index=1, share=Fraction(1), address="GPU-1")])

    assert (environment["CUDA_VISIBLE_DEVICES"], environment["DIBS_GPUS"]) == ("GPU-1", "1")


def test_amd_cards_are_hidden_by_rocm_and_counted_from_0_above_it():
    environment = gpu_environment(
        [Claim(gpu=f"AMD-{index}", index=index, share=Fraction(1), address=str(index - 2)) for index in (3, 5)]
    )

    assert environment["ROCR_VISIBLE_DEVICES"] == "1,3"
    assert environment["HIP_VISIBLE_DEVICES"] == environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert environment["DIBS_GPUS"] == "3,5"


def test_every_variable_that_a_job_gets_is_known_as_ours():
    for claims_of in ([], claims(0), [Claim(gpu="AMD-0", index=0, share=Fraction(1))]):
        assert gpu_environment(claims_of).keys() <= GPU_VARIABLES


def test_changed_does_what_replace_does():
    request = Request(command=Command.line("train"), name="a", retries=3)
    job = Job(id=JobId(7), request=request, rank=1.5)

    assert changed(job, state=State.RUNNING, attempts=2) == replace(job, state=State.RUNNING, attempts=2)
    assert changed(request, command=Command.line("b")) == replace(request, command=Command.line("b"))
    assert job.state is State.QUEUED


def test_a_change_of_an_unknown_field_is_an_error():
    with pytest.raises(AttributeError):
        changed(Job(id=JobId(7), request=Request(command=Command.line("train"))), stat=State.RUNNING)
