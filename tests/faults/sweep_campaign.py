"""A sweep whose daemon is killed, and what there is to complain of when it is over."""

from collections import Counter
from typing import Any

import optuna

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import LONG, look, trials

SAMPLES = 14
DENSE = [{"name": name, "low": -5, "high": 5} for name in ("x", "y")]
# It signs in, works a little, says what it came to, and signs out.
COMMAND = (
    'echo "start {x},{y} - $$" >> "$LEDGER"; sleep 0.05; '
    """awk 'BEGIN { print "loss=" ({x} - 2)^2 + ({y} + 1)^2 }' >> "$DIBS_METRICS"; """
    'echo "end {x},{y} - $$" >> "$LEDGER"'
)
ADAPTIVE = {"method": "adaptive", "samples": SAMPLES, "seed": 5, "parallel": 3, "wishes": {"num_gpus": 0}}
# Ends early where it is not worth it: more of x is worse from the first step on. None is done before it may be.
STEPS = (
    'echo "start {x} - $$" >> "$LEDGER"; for step in 1 2 3 4 5 6 7 8; do '
    'echo "loss=$(( 100 * {x} - step )) step=$step" >> "$DIBS_METRICS"; sleep 0.5; done; '
    'until test -e "$LEDGER.done"; do sleep 0.05; done; echo "end {x} - $$" >> "$LEDGER"'
)
PRUNED = {"pruner": "halving", "parallel": 8, "seed": 1, "wishes": {"num_gpus": 0, "grace_seconds": 1}}


def dies(daemon: DaemonProcess) -> None:
    """Wait for the daemon to reach the point at which it kills itself."""
    assert daemon.running is not None
    assert daemon.running.process.wait(LONG) == -9, daemon.running.stderr


def complaints(daemon: DaemonProcess, sweep: int, wanted: int) -> list[str]:
    """What is not as it should be, now that the sweep is over."""
    found = trials(daemon, sweep)
    started = Counter(daemon.world.ledger.started())
    study = study_of(daemon, sweep)
    told = [trial for trial in study.trials if trial.state.name != "RUNNING"]
    said = []
    if [trial["number"] for trial in found] != [*range(1, wanted + 1)]:
        said.append(f"trials are {[trial['number'] for trial in found]}")
    if [trial["state"] for trial in found if trial["state"] not in ("complete", "pruned")]:
        said.append(f"states are {[(trial['number'], trial['state'], trial['why']) for trial in found]}")
    if any(times > 1 for times in started.values()):
        said.append(f"started more than once: {started}")
    if started.total() != wanted:
        said.append(f"{started.total()} were started")
    if len({trial["job"] for trial in found}) != wanted:
        said.append(f"jobs are {[trial['job'] for trial in found]}")
    if sum(daemon.get("/v1/jobs")["counts"].values()) != wanted:
        said.append(f"there are {daemon.get('/v1/jobs')['counts']} jobs")
    if len(study.trials) != wanted or len(told) != wanted:
        said.append(f"the study has {[(trial.number, trial.state.name) for trial in study.trials]}")
    if {tuple(sorted(trial.user_attrs["point"].items())) for trial in study.trials} != {
        tuple(sorted(trial["point"].items())) for trial in found
    }:
        said.append("the study has other points than the store")
    said += [f"trial {trial['number']} has the value of another point" for trial in found if not is_its_own(trial)]
    return said


def is_its_own(trial: Any) -> bool:
    """Whether the value of a complete trial is that of its point."""
    if trial["state"] != "complete" or "y" not in trial["point"]:
        return True
    x, y = (float(trial["point"][name]) for name in ("x", "y"))
    return bool(abs(trial["values"][0] - ((x - 2) ** 2 + (y + 1) ** 2)) < 0.01)


def study_of(daemon: DaemonProcess, sweep: int) -> optuna.Study:
    backend = optuna.storages.journal.JournalFileBackend(look(daemon, sweep)["journal"])
    return optuna.load_study(study_name=f"sweep-{sweep}", storage=optuna.storages.JournalStorage(backend))
