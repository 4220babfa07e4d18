"""Adapters for other people's tools, each small: submitit and Optuna. Hydra wants its own in `hydra_plugins`."""
