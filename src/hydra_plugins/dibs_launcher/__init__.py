"""Hydra's launcher for the queue of dibs: `--multirun hydra/launcher=dibs`.

Hydra imports every module here whenever any Hydra application starts, so none of them imports dibs at its top.
"""
