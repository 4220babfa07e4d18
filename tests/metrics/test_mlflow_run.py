"""Runs in MLflow's file store."""

import time
from pathlib import Path

from dibs.metrics.attempt import AttemptMetrics, MetricSources

BEGAN = 1_700_000_000.0


def a_run(root: Path, number: int, begun: float, *, attempt: str = "", **metrics: str) -> Path:
    folder = root / "mlruns" / "0" / f"{number:032x}"
    (folder / "metrics").mkdir(parents=True)
    (folder / "tags").mkdir()
    (folder / "meta.yaml").write_text(f"run_id: x\nstart_time: {int(begun * 1000)}\nstatus: 1\n")
    if attempt:
        (folder / "tags" / "dibs.attempt").write_text(attempt)
    for name, text in metrics.items():
        path = folder / "metrics" / name.replace(".", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def found(metrics: AttemptMetrics) -> dict[str, list[tuple[float, float, float]]]:
    metrics.look(time.monotonic() + 60, ended=None, is_whole=False)
    return {
        one.name: [(at.step, at.at - BEGAN, at.value) for at in one.series.points()] for one in metrics.series()
    }


def metrics_of(root: Path) -> AttemptMetrics:
    return AttemptMetrics(MetricSources(folder=str(root / "attempt"), began=BEGAN, workdir=str(root)))


def test_metrics_are_read_on_with_their_times_and_steps(tmp_path):
    run = a_run(tmp_path, 1, BEGAN + 1, **{"val.loss": "1700000002000 0.5 1\n1700000003000 0.25 2\n17000"})
    metrics = metrics_of(tmp_path)
    first = found(metrics)
    with open(run / "metrics" / "val" / "loss", "a") as file:
        file.write("00004000 0.125 3\nnonsense\n\n1 2 3 4 x\n")
    (run / "metrics" / "acc").write_text("1700000004000 1.0\n")

    assert first == {"val/loss": [(1, 2, 0.5), (2, 3, 0.25)]}
    second = found(metrics)
    assert second["val/loss"][:3] == [(1, 2, 0.5), (2, 3, 0.25), (3, 4, 0.125)]
    assert second["acc"] == [(0, 4, 1.0)]
    assert {one.source for one in metrics.series()} == {"mlflow"}


def test_runs_of_another_time_or_another_attempt_are_not_its_own(tmp_path):
    line = "1700000002000 {} 1\n"
    a_run(tmp_path, 1, BEGAN - 60, loss=line.format(1))
    a_run(tmp_path, 2, BEGAN + 1, attempt="/of/another/17.1", loss=line.format(2))
    a_run(tmp_path, 3, BEGAN - 60, attempt=str(tmp_path / "attempt"), loss=line.format(3))
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "loss").write_text(line.format(4))

    assert found(metrics_of(tmp_path)) == {"loss": [(1, 2, 3.0)]}
