"""Sweeps in the queue: what people ask of them, and a task that looks after each."""
