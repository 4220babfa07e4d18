"""Yesterday's queue, played again: what `dibs export` prints is a trace. A real daemon, declared GPUs."""

import json


def test_what_ran_in_the_queue_can_be_played_again_on_another_machine(world):
    world.environ["DIBS_POOL"] = "0"
    world.dibs("add", "--array", "1-4%2", "-P", "a", "--", "sleep", "0.2")
    world.dibs("add", "-n", "0", "--hold", "--", "true")
    assert world.dibs("wait", "1-4").status == 0
    exported = world.dibs("export").stdout

    done = world.dibs("simulate", "-", "-n", "4", "--json", input=exported)

    assert done.status == 0, done.stderr
    assert done.stderr == "dibs: left out 1 recorded job without an end\n"
    told = json.loads(done.stdout)
    assert told["trace"]["jobs"] == 4
    found = told["results"][0]
    assert (found["ran"], found["projects"]["a"]["jobs"]) == (4, 4)
    assert found["really_waits"]["longest_seconds"] > 0.5  # one after another on one GPU
    # Two by two, though there were four.
    assert 0.2 <= found["waits"]["longest_seconds"] < found["really_waits"]["longest_seconds"]
    assert max(found["series"]["held_gpus"]) <= 2 + 1e-3
