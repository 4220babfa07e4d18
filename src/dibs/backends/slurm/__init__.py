"""Slurm as a place where attempts run."""
