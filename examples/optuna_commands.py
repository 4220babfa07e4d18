"""An Optuna study over a command in any language: the script asks, dibs runs, the script tells.

    python examples/optuna_commands.py

The command reports in the file that `DIBS_METRICS` names. Two trials run at a time; the study is in memory.
"""

import optuna

import dibs

TRAIN = """echo val_loss=$(awk 'BEGIN {{ print ({lr} - 0.03) ^ 2 }}') >> "$DIBS_METRICS" """


def main() -> None:
    study = optuna.create_study()
    for _ in range(3):
        running = []
        for _ in range(2):
            trial = study.ask()
            lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
            running.append((trial, dibs.submit(TRAIN.format(lr=lr), num_gpus=1, name=f"trial-{trial.number}")))
        for trial, job in running:
            study.tell(trial, job.metric("val_loss"))
    print(f"best of {len(study.trials)}: {study.best_value:.6f} with {study.best_params}")


if __name__ == "__main__":
    main()
