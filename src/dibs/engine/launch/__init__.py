"""Attempts of this machine: leased, started, found to have ended."""
