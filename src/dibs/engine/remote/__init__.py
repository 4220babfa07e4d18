"""Attempts that other systems run."""
