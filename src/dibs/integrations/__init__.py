"""Callbacks for libraries that train: each module imports its library, and nothing else of dibs does."""
