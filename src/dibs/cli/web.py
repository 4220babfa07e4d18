"""`dibs web`: the queue in a browser."""

import os
import re
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

import click

from dibs.cli.options import ParsedOption
from dibs.cli.output import say, show, show_json
from dibs.client.client import connect
from dibs.errors import BadInput

_EPILOG = """\b
Examples:
  dibs web                 print an address and open it
  dibs web --read-only     an address that can change nothing
  dibs web --stop          let no browser in any more
"""


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65_535:
        raise BadInput(f"cannot read {text!r} as a port", remedy="it is a number from 1 to 65535")
    return int(text)


_PORT = ParsedOption("port", _port)


@click.command(epilog=_EPILOG)
@click.option("--port", type=_PORT, metavar="N", help="The port (8265, or the next one that is free).")
@click.option("--read-only", is_flag=True, help="Give an address that can look but change nothing.")
@click.option("--no-open", is_flag=True, help="Only print the address.")
@click.option("--host", metavar="NAME", help="Listen at this address instead of 127.0.0.1. Any other needs TLS.")
@click.option("--tls-cert", type=click.Path(), metavar="FILE", help="The certificate, in PEM.")
@click.option("--tls-key", type=click.Path(), metavar="FILE", help="Its key, in PEM, without a password.")
@click.option("--new-token", is_flag=True, help="Send every browser away first: each needs a new address.")
@click.option("--stop", is_flag=True, help="Let no browser in any more.")
@click.option("--json", "as_json", is_flag=True, help="Print an object: address, code and expires_at.")
def web(
    port: int | None,
    read_only: bool,
    no_open: bool,
    host: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    new_token: bool,
    stop: bool,
    as_json: bool,
) -> int:
    """Open the queue in a browser: print an address with a code that works once, within 10 minutes.

    The page stays there, also after a restart of the daemon, until --stop. It is for browsers on this machine;
    from another one, `ssh -L` leads to it.
    """
    wishes: dict[str, Any] = {
        "port": port,
        "host": host,
        "certificate": os.path.abspath(tls_cert) if tls_cert else None,
        "key": os.path.abspath(tls_key) if tls_key else None,
        "read_only": read_only or None,
    }
    if stop:
        if any(wish is not None for wish in wishes.values()) or new_token:
            raise BadInput("--stop stands alone", remedy="dibs web --stop")
        return _stop(as_json)

    client = connect(os.environ)
    if new_token:
        client.renew_page_token()
    entry = client.open_page(**wishes)
    if as_json:
        show_json(entry)
        return 0
    address = f"{entry['address']}#code={entry['code']}"
    show(address)
    say(_sentence(read_only))
    if hint := _over_ssh(entry["address"]):
        say(hint)
    if not no_open and _has_browser():
        import webbrowser

        webbrowser.open(address)
    return 0


def _stop(as_json: bool) -> int:
    changed = connect(os.environ, start=False).close_page()
    if as_json:
        show_json({"changed": changed})
    else:
        say("the page is closed" if changed else "the page was not open")
    return 0


def _sentence(read_only: bool) -> str:
    what = "the queue, to look at" if read_only else "the queue"
    return f"{what}, in a browser: the address works once, within 10 minutes; `dibs web --stop` closes the page"


def _over_ssh(address: str) -> str:
    """How to reach the page from the machine of the ssh session; empty where there is none."""
    if not os.environ.get("SSH_CONNECTION"):
        return ""

    place = urlsplit(address)
    if place.scheme == "https" or place.port is None:
        return ""
    host = place.netloc.rpartition(":")[0]
    return f"on your own machine, first: ssh -L {place.port}:{host}:{place.port} {socket.gethostname()}"


def _has_browser() -> bool:
    """Whether this machine has a screen, and a terminal shows our output."""
    if not sys.stdout.isatty():
        return False
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
