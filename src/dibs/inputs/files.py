"""Opening what somebody named on the command line, with a sentence where that fails."""

import os
from typing import BinaryIO, cast

from dibs.errors import BadInput


def open_input(path: str) -> BinaryIO:
    """The file, open for reading. One that is not there or cannot be read raises BadInput."""
    if not path or "\0" in path:
        raise BadInput(f"cannot read the job file {path!r}", remedy="give the path of a file")
    try:
        return cast(BinaryIO, open(path, "rb"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "name the files in it, each with -f" if os.path.isdir(path) else "check its name and permissions"
        raise BadInput(f"cannot read the job file {path!r}: {reason}", remedy=remedy) from error
