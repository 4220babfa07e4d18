"""The `dibs` command. Together with `compat` the only room that knows argv."""

import gc

# A command creates up to a hundred thousand objects while it starts, and drops almost none of them: with Python's
# own threshold of 700, looking for garbage among them takes a fourteenth of the time of `dibs add`.
gc.set_threshold(200_000)
