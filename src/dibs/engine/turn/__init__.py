"""A turn as a value: what is known, and what is decided from it."""
