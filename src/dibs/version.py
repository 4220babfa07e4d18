"""The version of this package, also as `dibs.__version__`."""

__version__ = "0.1.0"
