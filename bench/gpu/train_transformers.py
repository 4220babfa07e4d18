"""A transformers training with the callback: a small BERT, with dropout, on made-up sentences."""

import argparse
import os
import time

import torch
from torch.utils.data import Dataset
from train_common import device, print_result, repeatable, say_that_it_begins
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from dibs.integrations.transformers import DibsCallback

BATCH = 16


class Sentences(Dataset):  # type: ignore[type-arg]
    def __init__(self, number: int) -> None:
        self._words = torch.randint(0, 200, (number, 32), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        time.sleep(0.01 / BATCH)  # as a loader that reads files: the training can be interrupted by hand
        words = self._words[place]
        return {"input_ids": words, "labels": (words.sum() % 2).long()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps

    repeatable()
    callback = DibsCallback()
    config = BertConfig(
        vocab_size=200,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        num_labels=2,
    )
    model = BertForSequenceClassification(config)
    arguments = TrainingArguments(
        f"transformers-{os.environ['DIBS_JOB_ID']}",
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=device() == "cpu",
        disable_tqdm=True,
        full_determinism=True,
    )
    # Three epochs, so that one is interrupted in its middle.
    trainer = Trainer(model, arguments, train_dataset=Sentences(steps * BATCH // 3), callbacks=[callback])
    say_that_it_begins()
    trainer.train(resume_from_checkpoint=callback.checkpoint)
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    print_result(model, trainer.state.global_step, losses[-1], model.device)


if __name__ == "__main__":
    main()
