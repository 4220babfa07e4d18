"""What every trial of a study in a database needs, done once: imported by the warm processes of `dibs.optimize`.

Optuna imports SQLAlchemy, Alembic and numpy's generators when they are first used, and SQLAlchemy prepares its
tables then: half a second in each job.
"""

import cloudpickle as cloudpickle  # the job pickles its result
import optuna

from dibs.plugins.optuna_trial import TrialCall as TrialCall  # the pickled trial names it


def _run_one_trial() -> None:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        storage = optuna.storages.RDBStorage("sqlite://")  # in memory: no file is left
        study = optuna.create_study(storage=storage)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        storage.remove_session()
        storage.engine.dispose()
    finally:
        optuna.logging.set_verbosity(level)


_run_one_trial()
