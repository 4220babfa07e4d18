"""How many files a newcomer reads who follows one job."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_one_job_runs_functions_of_at_most_as_many_files_as_the_docs_say():
    page = (ROOT / "docs/explanation/how-it-works.md").read_text()
    promised = int(re.search(r"at most (\d+)\.", page)[1])

    listed = subprocess.run(
        [sys.executable, "bench/files_of_a_job.py"], cwd=ROOT, capture_output=True, text=True, timeout=120
    ).stdout.splitlines()

    assert len(listed) - 1 <= promised, listed
    assert {"cli/add.py", "engine/turn/decide.py", "supervise/shim.py"} <= set(listed)
