"""The only room that touches processes. The zygote and the shim import the standard library alone."""
