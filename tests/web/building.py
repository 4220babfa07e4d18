"""The page's tools: Node, and what `npm ci` puts into web/node_modules."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

WEB = Path(__file__).parents[2] / "web"
BUILT = WEB.parent / "src" / "dibs" / "daemon" / "web" / "page"
MODULES = WEB / "node_modules"
_MARK = MODULES / ".installed"  # the lock file's hash
_LIMIT = 600  # seconds


def npm(*words: str, env: Mapping[str, str] | None = None) -> None:
    """Run npm in web/. `make test` puts a Node into the virtual environment where the machine has none."""
    # Not resolve(): in a virtual environment the interpreter is a link to another place.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["npm", "--no-update-notifier", *words]
    environ = {**os.environ, "PATH": path, **(env or {})}
    ended = subprocess.run(command, cwd=WEB, env=environ, capture_output=True, text=True, timeout=_LIMIT)
    assert ended.returncode == 0, f"npm {' '.join(words)}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"


@cache
def install_tools() -> None:
    """What the lock file says, once for each lock file."""
    wanted = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    if _MARK.exists() and _MARK.read_text() == wanted:
        return
    npm("ci", "--no-audit", "--no-fund")
    _MARK.write_text(wanted)
