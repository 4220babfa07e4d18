"""The verbs of a queue, and the list of a run."""
