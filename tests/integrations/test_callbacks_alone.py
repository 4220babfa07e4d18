"""What the callbacks do when a library calls them, without the libraries; test_callbacks.py has those."""

import importlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Make = Callable[[str], Any]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    """The callback for a library, in a job that may be asked to save."""
    monkeypatch.setenv("DIBS_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("DIBS_METRICS", str(tmp_path / "metrics"))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    made = []

    def callback(library: str) -> Any:
        for name in ("lightning", "lightning.pytorch", "transformers", "keras", "keras.callbacks"):
            module: Any = ModuleType(name)
            module.Callback = module.TrainerCallback = type("Base", (), {})
            monkeypatch.setitem(sys.modules, name, module)
        made.append(f"dibs.integrations.{library}")
        sys.modules.pop(made[-1], None)
        return importlib.import_module(made[-1]).DibsCallback()

    yield callback
    for name in made:
        sys.modules.pop(name, None)


def lines(folder: Path) -> list[str]:
    return [line.partition(" _timestamp")[0] for line in (folder / "metrics").read_text().splitlines()]


def leave(act: Callable[[], object]) -> None:
    with pytest.raises(SystemExit) as left:
        act()
    assert left.value.code == 0


def test_lightning(make: Make, tmp_path: Path) -> None:
    callback = make("lightning")
    assert callback.checkpoint is None
    trainer = SimpleNamespace(
        **dict.fromkeys(("is_global_zero", "training"), True),
        global_step=10,
        log_every_n_steps=5,
        sanity_checking=False,
        estimated_stepping_batches=40,
        logged_metrics={"loss": 0.5},
        callback_metrics={"loss": 0.5, "val/loss": 0.25},
        save_checkpoint=lambda path: Path(path).write_text("state"),
        strategy=SimpleNamespace(reduce_boolean_decision=lambda asked, all: asked, barrier=lambda: None),
    )

    callback.on_train_batch_end(trainer, None, None, None, 0)
    callback.on_train_batch_end(trainer, None, None, None, 1)  # the same step, of several batches
    callback.on_validation_end(trainer, None)
    callback._signal.asked = True
    leave(lambda: callback.on_train_batch_end(trainer, None, None, None, 2))

    trainer.log_every_n_steps = 0  # nothing is logged by steps
    callback._signal.asked = False
    callback.on_train_batch_end(trainer, None, None, None, 3)

    assert lines(tmp_path) == ["loss=0.5 steps=40 step=10", "loss=0.5 val/loss=0.25 steps=40 step=10"]
    assert Path(callback.checkpoint).read_text() == "state"


def test_lightning_under_its_older_name_alone_is_found(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make("lightning")
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    # On the disk, and not imported before.
    (tmp_path / "pytorch_lightning.py").write_text("class Callback: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("dibs.integrations.lightning")

    callback = importlib.import_module("dibs.integrations.lightning").DibsCallback()

    assert type(callback).__mro__[1].__module__ == "pytorch_lightning"
    sys.modules.pop("pytorch_lightning")


def test_lightning_outside_of_a_job_asks_no_other_process(make: Make) -> None:
    asked: list[bool] = []
    strategy = SimpleNamespace(reduce_boolean_decision=lambda one, all: asked.append(one))
    callback = make("lightning")

    callback.on_train_batch_end(SimpleNamespace(global_step=1, log_every_n_steps=10, strategy=strategy))
    assert asked == [False]
    callback._signal.folder = None
    callback.on_train_batch_end(SimpleNamespace(global_step=2, log_every_n_steps=10, strategy=strategy))

    assert asked == [False]


def test_transformers(make: Make, tmp_path: Path) -> None:
    callback = make("transformers")
    arguments = SimpleNamespace(world_size=1, output_dir=str(tmp_path / "out"))
    state = SimpleNamespace(is_world_process_zero=True, global_step=7, max_steps=20)
    control = SimpleNamespace(should_save=False)

    callback.on_log(arguments, state, control, logs={"loss": 0.5, "note": "text"})
    callback.on_step_end(arguments, state, control)
    before = control.should_save
    callback._signal.asked = True
    callback.on_step_end(arguments, state, control)
    (tmp_path / "out" / "checkpoint-7").mkdir(parents=True)
    leave(lambda: callback.on_save(arguments, state, control))

    assert (before, control.should_save) == (False, True)
    assert lines(tmp_path) == ["loss=0.5 steps=20 step=7"]
    assert callback.checkpoint == str(tmp_path / "out" / "checkpoint-7")


def test_keras(make: Make, tmp_path: Path) -> None:
    callback = make("keras")
    loaded: list[Path] = []
    callback.params = {"epochs": 3}
    callback.model = SimpleNamespace(
        optimizer=None, save_weights=lambda path, overwrite: path.write_text("weights"), load_weights=loaded.append
    )

    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_epoch_end(0, {"loss": 0.5})
    callback.on_train_batch_end(0)
    callback._signal.asked = True
    leave(lambda: callback.on_train_batch_end(1))
    callback.on_train_begin()  # a later fit of this process
    assert not loaded

    again = make("keras")  # as in the next attempt
    again.model = callback.model
    again.on_train_begin()
    other = type(again)()
    other.model = callback.model
    other.on_train_begin()

    assert lines(tmp_path) == ["loss=0.5 steps=3 step=1"]
    assert again.initial_epoch == 1
    assert [path.read_text() for path in loaded] == ["weights"]


@pytest.mark.parametrize(
    ("library", "begin"),
    [("lightning", "on_train_start"), ("transformers", "on_train_begin"), ("keras", "on_train_begin")],
)
def test_after_a_training_the_signal_is_ignored_until_the_next_begins(
    make: Make, monkeypatch: pytest.MonkeyPatch, library: str, begin: str
) -> None:
    """A job whose work was done was queued again, as long as the signal came while its program ended."""
    handlers: list[Any] = []
    monkeypatch.setattr("signal.signal", lambda number, handler: handlers.append(handler))

    callback = make(library)
    getattr(callback, begin)()
    callback.on_train_end()
    getattr(callback, begin)()

    assert [handler is signal.SIG_IGN for handler in handlers] == [False, False, True, False]
