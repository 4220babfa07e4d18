"""Puts the concrete parts together. No other room chooses a store, an engine or a backend."""
