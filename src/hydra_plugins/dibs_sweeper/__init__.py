"""Hydra's sweeper that searches with Optuna: `--multirun hydra/sweeper=dibs`. Its trials run in the queue of dibs.

Hydra imports every module here whenever any Hydra application starts, so none imports dibs or Optuna at its top.
"""
