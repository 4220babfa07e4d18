"""The callbacks in real trainings, which are interrupted by the signal and go on; skipped without the library:

pip install torch lightning transformers accelerate keras
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

LIGHTNING = """
import os, signal
import torch, lightning as L
from dibs.integrations.lightning import DibsCallback

class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        if self.global_step == 6 and not callback.checkpoint:
            os.kill(os.getpid(), signal.SIGUSR1)
        loss = (self.layer(batch) ** 2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)

callback = DibsCallback()
quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
trainer = L.Trainer(max_epochs=2, callbacks=[callback], log_every_n_steps=2, accelerator="cpu", **quiet)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(20, 4), batch_size=4), ckpt_path=callback.checkpoint)
print("end", trainer.global_step)
"""
TRANSFORMERS = """
import os, signal
import torch
from transformers import Trainer, TrainingArguments
from dibs.integrations.transformers import DibsCallback

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x=None, labels=None):
        if trainer.state.global_step == 6 and not callback.checkpoint:
            os.kill(os.getpid(), signal.SIGUSR1)
        found = self.layer(x)
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}

callback = DibsCallback()
data = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(20)]
arguments = TrainingArguments(
    "out", num_train_epochs=2, per_device_train_batch_size=4, logging_steps=2, save_strategy="no", report_to=[],
    use_cpu=True, disable_tqdm=True,
)
trainer = Trainer(Module(), arguments, train_dataset=data, callbacks=[callback])
trainer.train(resume_from_checkpoint=callback.checkpoint)
print("end", trainer.state.global_step)
"""
KERAS = """
import os, signal
os.environ.setdefault("KERAS_BACKEND", "torch")
import keras, numpy
from dibs.integrations.keras import DibsCallback

class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1 and callback._epoch == 1 and not callback.initial_epoch:
            os.kill(os.getpid(), signal.SIGUSR1)

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse")
callback = DibsCallback()
x = numpy.random.randn(20, 4)
model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[Interrupt(), callback],
          initial_epoch=callback.initial_epoch)
print("end", int(model.optimizer.iterations))
"""


# Keras begins the epoch again, after 7 steps: 7 + 5.
@pytest.mark.parametrize(
    ("package", "program", "saved", "end", "last"),
    [
        ("lightning", LIGHTNING, "step 7", 10, {"step": "10", "steps": "10"}),
        ("transformers", TRANSFORMERS, "step 7", 10, {"step": "10", "steps": "10"}),
        ("keras", KERAS, "epoch 2", 12, {"step": "2", "steps": "2"}),
    ],
    ids=["lightning", "transformers", "keras"],
)
def test_a_training_reports_saves_at_the_signal_and_goes_on(tmp_path, package, program, saved, end, last):
    if not all(importlib.util.find_spec(name) for name in (package, "torch")):
        pytest.skip(f"pip install {package} torch")
    environment = {
        **os.environ,
        "DIBS_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "DIBS_METRICS": str(tmp_path / "metrics"),
        "OMP_NUM_THREADS": "1",
    }

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    first, second = run(), run()

    assert first.returncode == 0, first.stderr
    assert f"dibs: {saved} is saved" in first.stderr and "end" not in first.stdout
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[-1] == f"end {end}"
    lines = [
        dict(word.split("=") for word in line.split()) for line in (tmp_path / "metrics").read_text().splitlines()
    ]
    assert all("loss" in line or "train_loss" in line for line in lines), json.dumps(lines)
    assert {name: lines[-1][name] for name in last} == last
