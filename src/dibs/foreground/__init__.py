"""Running a list to its end in front of a person: the engine in this process, its inputs and its stop rules."""
