"""Makes docs/pictures/page-nodes.png: the page beside a real Slurm of three nodes on this machine, cards faked.

`make docs` runs this; it needs Debian's slurm-wlm and munge, as the tests do.
"""

import contextlib
import os
import pwd
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from make_page_pictures import ARGUMENTS, BIN, PICTURES, ROOT, WIDE, _said
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(ROOT / "tests"))

from backends.private_slurm import PrivateSlurm

PATIENCE = 60.0  # seconds


def main() -> None:
    """Make the picture."""
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as scratch:
        os.chmod(scratch, 0o755)  # munge requires that every user can reach its socket
        slurm = PrivateSlurm(Path(scratch) / "slurm", kind="a100")
        slurm.start()
        try:
            with _queue(Path(scratch), slurm) as environment:
                address = _said(["dibs", "web", "--no-open"], environment).strip()
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
                    _take(browser, address)
                    browser.close()
        finally:
            slurm.stop()


@contextlib.contextmanager
def _queue(scratch: Path, slurm: PrivateSlurm) -> Iterator[dict[str, str]]:
    """A daemon whose jobs run on the cluster: more than there is room for, and a node that is being mended."""
    environment = {
        **slurm.environment,
        "PATH": f"{BIN}{os.pathsep}{slurm.environment['PATH']}",
        "LANG": "C.UTF-8",
        "DIBS_STATE": str(scratch / "state"),
        "DIBS_LEASES": str(scratch / "leases"),
        "DIBS_PROBE": "none",
        "DIBS_BACKEND": "slurm",
        "DIBS_SLURM_EVERY": "1s",
    }
    try:
        for name, count in (("resnet-baseline", "2"), ("tokenizer", "1"), ("lr-0.1", "1"), ("lr-0.03", "1")):
            _said(["dibs", "add", "-q", "-J", name, "-n", count, "-t", "2h", "--", "sleep", "600"], environment)
        deadline = time.monotonic() + PATIENCE
        while '"running": 4' not in _said(["dibs", "daemon", "status", "--json"], environment):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        slurm.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=new cooling fan")
        for name in ("lr-0.01", "evaluate"):
            _said(["dibs", "add", "-q", "-J", name, "-n", "2", "-t", "30m", "--", "sleep", "600"], environment)
        time.sleep(8)  # until Slurm has looked at them and the page at Slurm
        yield environment
    finally:
        _said(["dibs", "daemon", "stop", "--jobs"], environment)


def _take(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": WIDE, "height": 560})
    page.goto(address)
    page.get_by_text("n3", exact=True).first.wait_for()
    page.wait_for_timeout(1500)  # what is asked for in the second place
    # The user in it is called ben.
    page.evaluate(
        """old => { const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replaceAll(old, "ben"); }""",
        pwd.getpwuid(os.geteuid()).pw_name,
    )
    path = PICTURES / "page-nodes.png"
    page.screenshot(path=path, animations="disabled")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024 + 1} KiB")


if __name__ == "__main__":
    main()
