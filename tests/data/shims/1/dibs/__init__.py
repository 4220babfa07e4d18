"""dibs gives every command its GPU."""

# Kept almost empty on purpose: the zygote imports this package before it forks a supervisor per job,
# so every name added here is paid for by every job.

__version__ = "0.1.0"
