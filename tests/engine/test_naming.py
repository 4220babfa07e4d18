"""Cards that jobs name: by number in their owner's words, by UUID in ours."""

from dibs.gpus.pool import declared_gpu
from dibs.model.gpus import Card, Gpu, Pool
from dibs.model.jobs import Command, Request, Wishes
from dibs.policy.fitting import by_uuid

POOL = Pool(
    cards=tuple(
        Card(gpu=gpu)
        for gpu in (
            Gpu(key="GPU-a", index=0),
            Gpu(key="MIG-b", index=1, part=0),
            Gpu(key="MIG-c", index=1, part=1),
            declared_gpu(2),
        )
    )
)


def a_request(only=(), prefer=()):
    return Request(command=Command.line("true"), wishes=Wishes(only=tuple(only), prefer=tuple(prefer)))


def test_numbers_become_uuids_where_there_are_any():
    [named] = by_uuid([a_request(only=["0", "1", "2", "1:1", "GPU-x"], prefer=["1:0", "9"])], POOL)

    assert named.wishes.only == ("GPU-a", "MIG-b", "MIG-c", "2", "GPU-x")
    assert named.wishes.prefer == ("MIG-b", "9")


def test_jobs_of_one_list_still_share_their_wishes():
    named = by_uuid([a_request(only=["0"]) for _ in range(3)], POOL)

    assert len({id(request.wishes) for request in named}) == 1


def test_a_list_that_names_no_card_is_left_as_it_is():
    requests = [a_request()]

    assert by_uuid(requests, POOL) is requests
