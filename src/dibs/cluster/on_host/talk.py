"""How a host answers, and whether hosts reach each other.

An answer is a line of JSON behind a mark, because login shells may print something too.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

MARK = "==dibs=="


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(f"\n{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()


_PATIENCE = 5.0  # seconds for a call


def meet(request: dict[str, Any]) -> dict[str, Any]:
    """Listen, say so, wait until all hosts do, call all of them, and stay until all have called."""
    listening = []
    for port in request["listen"]:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("", port))
        one.listen(128)
        listening.append(one)
    say({"ready": True})
    # Only this call reads stdin from now on.
    sys.stdin.buffer.readline()
    failed = {}
    for name, address, port in request["call"]:
        why = _call(address, port)
        if why:
            failed[name] = f"{address} port {port}: {why}"
    say({"failed": failed})
    sys.stdin.buffer.read()
    for one in listening:
        one.close()
    return {}


def _call(address: str, port: int) -> str:
    try:
        with socket.create_connection((address, port), timeout=_PATIENCE):
            return ""
    except socket.timeout:  # noqa: UP041  # another class before 3.10
        return "no answer"
    except socket.gaierror:
        return "the name is not known there"
    except OSError as error:
        return (error.strerror or os.strerror(error.errno or 0)).lower()
