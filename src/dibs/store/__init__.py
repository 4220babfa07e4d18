"""What is remembered: one SQLite file. The only room that says SQL."""
