"""What people ask for: the verbs of a queue, and a run's list."""
