"""Which card is taken first when several would do."""

import pytest

from dibs.errors import BadInput
from dibs.model.gpus import Gpu
from dibs.policy.order import Order, parse_order
from dibs.policy.schedule import schedule
from dibs.policy.snapshot import CardView
from dibs.settings import check_value
from policy.builders import Machine, a_job, a_machine, placed


def in_order(text, machine, temperatures=()):
    """The machine as the engine would show it to the policy."""
    order = parse_order(text)
    warm = dict(enumerate(temperatures))

    def ranked(view: CardView) -> CardView:
        gpu = view.card.gpu
        return CardView(
            card=view.card, taken=view.taken, first=order.first(gpu), then=order.then(gpu, warm.get(gpu.index))
        )

    return Machine(tuple(map(ranked, machine.views)))


@pytest.mark.parametrize(
    ("text", "taken", "gpu"),
    [
        ("emptiest", {}, 0),
        ("emptiest", {0: "1/2"}, 1),
        ("last", {}, 3),
        ("last", {3: "1/2"}, 2),  # a card of one's own goes before the higher number
        ("coolest", {}, 2),
        ("coolest", {2: "1/2"}, 1),
        ("2,1", {}, 2),
        ("2,1", {2: "1/2"}, 2),  # named ones are filled up first
        ("2,1", {2: "1"}, 1),
        ("3", {3: "1"}, 0),
    ],
)
def test_the_first_in_the_order_is_taken(text, taken, gpu):
    machine = in_order(text, a_machine(4, taken=taken), temperatures=[60, 35, 30])
    job = a_job(share="1/2")

    plan = schedule(machine.with_waiting(job))

    assert placed(plan) == {job.id: [gpu]}


def test_what_a_job_prefers_goes_before_the_order():
    machine = in_order("last", a_machine(4))
    job = a_job(prefer=["1"])

    assert placed(schedule(machine.with_waiting(job))) == {job.id: [1]}


def test_a_card_may_be_named_by_its_uuid():
    order = parse_order("GPU-3f,0")

    assert [order.first(Gpu(key=key, index=0)) for key in ("GPU-3f2a", "GPU-77b1")] == [0, 1]
    assert order.first(Gpu(key="GPU-1", index=5)) == 2


@pytest.mark.parametrize("text", ["", "hottest", "0,0", "1,,2", "0;1"])
def test_what_cannot_be_meant_is_refused(text):
    with pytest.raises(BadInput, match="as an order of GPUs"):
        parse_order(text)


@pytest.mark.parametrize(
    "text", ["emptiest", "coolest", "last", "3,2", "0:1,GPU-3f2a", "AMD-7", "MIG-4b/1", "0,,1"]
)
def test_what_can_be_set_is_what_can_be_read(text):
    """The settings lie below the policy and have words of their own for it."""

    def refusal(read):
        try:
            read()
        except BadInput:
            return True
        return False

    setting = refusal(lambda: check_value("gpu_order", text, "here"))
    policy = refusal(lambda: parse_order(text))

    assert setting or not policy


def test_without_a_word_the_emptiest_goes_first():
    assert parse_order("emptiest") == Order()
