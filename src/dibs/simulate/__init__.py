"""The policy in virtual time: a trace of jobs, a machine that does not exist, and what came of it."""
