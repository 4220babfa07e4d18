"""An Optuna study in a script of one's own: every trial runs as a job with a GPU.

    python examples/optuna_objective.py

The trials share the study through its file, so that `suggest`, `report` and `should_prune` work as ever.
"""

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import dibs


def objective(trial: optuna.Trial) -> float:
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    width = trial.suggest_int("width", 1, 8)
    loss = 0.0
    for step in range(1, 4):
        loss = (lr - 0.03) ** 2 + (width - 5) ** 2 / step
        trial.report(loss, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


def main() -> None:
    storage = JournalStorage(JournalFileBackend("study.journal"))
    study = optuna.create_study(study_name="example", storage=storage, load_if_exists=True)
    dibs.optimize(study, objective, n_trials=8, parallel=4, num_gpus=1)
    print(f"best of {len(study.trials)}: {study.best_value:.3f} with {study.best_params}")


if __name__ == "__main__":
    main()
