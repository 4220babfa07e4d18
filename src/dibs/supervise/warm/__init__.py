"""Python jobs that are forked from a process which has imported their modules."""
