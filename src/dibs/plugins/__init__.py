"""Adapters for submitit and Optuna. Hydra requires its own to be in `hydra_plugins`."""
