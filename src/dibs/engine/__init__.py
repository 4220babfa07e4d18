"""One loop: take an event, decide, record, act, announce."""
