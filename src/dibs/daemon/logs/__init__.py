"""The output of jobs: where its lines begin, its text, searching it, and removing old output."""
