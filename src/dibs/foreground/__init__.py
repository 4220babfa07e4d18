"""Running a list to its end: the engine in this process, its inputs, and how it is stopped."""
