"""Searches over parameters: spaces that are counted and indexed, never written out."""
