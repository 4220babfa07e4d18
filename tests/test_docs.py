"""The documentation is true: its commands run, its links lead somewhere, and nothing is left out.

`make bless` (DIBS_BLESS=1) rewrites the golden files.
"""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stories.outside import commands_for_shells, kept_environment

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
GOLDEN = ROOT / "tests" / "data" / "golden"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PATIENCE = 180  # seconds for a block
EXACT = "simulate.md"  # the page whose blocks of text are word for word what the commands above them print
CONTAINERS = "containers.md"  # its blocks have container engines of their own
OF_THE_QUEUE = ("queue.md", "sweeps.md", "daemon.md", "api.md", "suspend.md", CONTAINERS)
ENDLESS = 1  # seconds after which a block that never ends is ended
# Every verb: `test_no_verb_is_forgotten` compares this with the program.
COMMANDS = [
    *("", "run", "add", "ls", "log", "why", "info", "wait", "web", "kill", "retry", "hold", "release", "edit"),
    *(
        "metrics",
        "report",
        "lessons",
        "pause",
        "unpause",
        "suspend",
        "resume",
        "clean",
        "export",
        "import",
        "simulate",
        "doctor",
    ),
    "completion",
    *("sweep", "sweep ls", "sweep show", "sweep best", "sweep results", "sweep wait", "sweep stop", "sweep hold"),
    *("sweep release", "sweep resume", "sweep retry-failed", "sweep edit", "sweep rm"),
    *("gpus", "gpus release", "gpus drain", "gpus undrain", "gpus add", "gpus remove"),
    *("daemon", "daemon start", "daemon stop", "daemon restart", "daemon status", "daemon log", "daemon run"),
    *("cluster", "cluster up", "cluster add", "cluster remove", "cluster status", "cluster down"),
    *("daemon install", "daemon uninstall", "config", "config get", "config set", "config path"),
]
_FENCE = re.compile(
    r"^(?:<!-- (?P<marks>[^\n]*) -->\n)?```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_LAYS_HANDS_ON_THE_MACHINE = re.compile(r"^(make|pip|sudo|git) ", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A piece of bash in a page. A comment above it may say `exit=1` or `endless`."""

    page: Path
    line: int
    marks: tuple[str, ...]
    text: str
    printed: str | None = None

    @property
    def exit_status(self) -> int:
        found = [mark.removeprefix("exit=") for mark in self.marks if mark.startswith("exit=")]
        return int(found[0]) if found else 0

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for fence in _FENCE.finditer(text):
            language, marks = fence["info"].strip(), (fence["marks"] or "").split()
            if language == "bash":
                printed = _FENCE.match(text, fence.end() + 2) if page.name == EXACT else None
                line = text[: fence.start()].count("\n") + 1
                yield Block(page, line, tuple(marks), fence["body"], printed["body"] if printed else None)


RUN = [block for block in blocks() if not _LAYS_HANDS_ON_THE_MACHINE.search(block.text)]
ONLY_READ = [block for block in blocks() if _LAYS_HANDS_ON_THE_MACHINE.search(block.text)]


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Homes"]:
    homes = Homes(tmp_path_factory)
    yield homes
    homes.close()


@pytest.fixture
def bash(request: pytest.FixtureRequest, homes: "Homes", tmp_path: Path) -> "Bash":
    callspec = getattr(request.node, "callspec", None)
    block = callspec.params.get("block") if callspec else None
    environment = homes.of(block.page if block else None)
    if block and block.page.name == CONTAINERS:
        engines = request.getfixturevalue("engines")
        for engine in ("podman", "docker"):
            engines.image_for(engine, name="pytorch/pytorch")
        # No driver: its cards would have to be given to containers.
        declared = {"DIBS_PROBE": "none", "DIBS_POOL": "0,1"}
        environment |= {name: value for name, value in engines.environment.items() if name != "PATH"} | declared
    return Bash(tmp_path, environment)


class Homes:
    """Homes for the blocks: each page that is about the queue has one, the others share one.

    The blocks of a home share a queue, whose daemon is stopped at the end. A daemon for every block would be
    tidier, and would take a second each.
    """

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._homes: dict[str, dict[str, str]] = {}

    def of(self, page: Path | None) -> dict[str, str]:
        """The environment of a machine with four idle cards."""
        name = page.name if page and page.name in OF_THE_QUEUE else ""
        if name not in self._homes:
            self._homes[name] = self._make()
        return self._homes[name]

    def close(self) -> None:
        for environment in self._homes.values():
            if (Path(environment["XDG_STATE_HOME"]) / "dibs" / "queue" / "lock").exists():
                stop = ["dibs", "daemon", "stop", "--jobs"]
                subprocess.run(stop, env=environment, timeout=PATIENCE, capture_output=True, check=False)
                status = subprocess.run(["dibs", "daemon", "status"], env=environment, capture_output=True)
                assert status.returncode == 69, "a daemon was left behind"

    def _make(self) -> dict[str, str]:
        home = self._factory.mktemp("home")  # a short path: curl takes 107 letters for a socket
        cards = [
            {"index": index, "uuid": f"GPU-{index}0000000-0000", "name": "NVIDIA H200", "memory_total": 150 << 30}
            for index in range(4)
        ]
        (home / "cards.json").write_text(json.dumps(cards))
        (home / "run").mkdir(mode=0o700)
        return {
            **kept_environment(),
            "PATH": f"{commands_for_shells()}:{os.environ['PATH']}",
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "DIBS_LEASES": str(home / "leases"),
            "DIBS_PROBE": f"fake:{home / 'cards.json'}",
        }


class Bash:
    """Bash in a folder of its own."""

    def __init__(self, tmp_path: Path, environment: dict[str, str]) -> None:
        self.folder = tmp_path / "a folder"
        shutil.copytree(ROOT / "examples", self.folder / "examples")
        self.environment = environment
        self.installed = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def start(self, text: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_what_the_pages_tell_you_to_type_works(block: Block, bash: Bash, request: pytest.FixtureRequest) -> None:
    if "dibs web" in block.text:
        request.getfixturevalue("one_listener_for_a_test")
    if re.search(r"\bcurl\b", block.text) and not shutil.which("curl"):
        pytest.skip("there is no curl here")
    is_endless = "endless" in block.marks
    # What is killed together with its shell is executed: a forked command is in another process group.
    process = bash.start(block.text, **({"PATH": bash.installed} if is_endless else {}))
    try:
        said, _ = process.communicate(timeout=ENDLESS if is_endless else PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        assert is_endless, f"{block.name} did not end:\n{said}"
        assert "error" not in said
        return

    assert not is_endless, f"{block.name} ended:\n{said}"
    assert process.returncode == block.exit_status, f"{block.name}:\n{said}"
    assert block.printed in (None, said)


def test_two_blocks_print_what_their_page_shows() -> None:
    assert sum(block.printed is not None for block in RUN) == 2


@pytest.mark.parametrize("block", ONLY_READ, ids=lambda block: block.name)
def test_blocks_that_install_things_name_targets_that_there_are(block: Block) -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    named = re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)
    others = [line for line in block.text.splitlines() if not line.startswith("make ")]

    assert set(named) <= set(targets)
    assert set(others) <= {"pip install .", ""}, "only what is known to work may stand unread in a page"


def test_every_target_of_the_makefile_is_explained_by_make_help() -> None:
    makefile = (ROOT / "Makefile").read_text()

    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    for target in ("demo", "test", "check", "bench", "docs", "bless", "faults", "help"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert f"make {target} " in said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text())

    for link in _LINK.findall(text):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in _anchors(target), f"{page.name} links to {link}; there are {_anchors(target)}"


def test_every_page_is_linked_from_the_index() -> None:
    linked = {
        (DOCS / link.partition("#")[0]).resolve()
        for link in _LINK.findall((DOCS / "index.md").read_text())
        if not link.startswith("http")
    }

    assert {page for page in DOCS.rglob("*.md") if page.name != "index.md"} <= linked


def test_every_page_has_its_place_on_the_site() -> None:
    nav = (ROOT / "zensical.toml").read_text()

    assert [page for page in DOCS.rglob("*.md") if f'"{page.relative_to(DOCS)}"' not in nav] == []


def test_every_picture_is_shown_somewhere_and_names_no_foreign_host() -> None:
    pages = "".join(page.read_text() for page in PAGES)

    for picture in (DOCS / "pictures").iterdir():
        assert f"pictures/{picture.name})" in pages
        if picture.suffix != ".svg":  # only these could load something from elsewhere
            continue
        hosts = set(re.findall(r"https?://[^\"' )]+", picture.read_text()))
        assert hosts == {"http://www.w3.org/2000/svg"}  # a name space, never fetched


@pytest.mark.parametrize("command", [name for name in COMMANDS if name])
def test_every_option_is_documented(command: str) -> None:
    pages = "".join(page.read_text() for page in sorted(DOCS.rglob("*.md")))

    options = re.findall(r"^ +(-\w)?(?:, )?(--[a-z-]+)", _help(command), re.MULTILINE)

    assert options  # --help at least
    for short, long in options:
        assert re.search(rf"{long}(?![a-z-])", pages), f"{long} of dibs {command} is in no page"
        assert not short or re.search(rf"(?<![\w-]){short}(?!\w)", pages), (
            f"{short} of dibs {command} is in no page"
        )


def test_no_verb_is_forgotten() -> None:
    found = {""}
    for group in ("", "sweep", "gpus", "daemon", "cluster", "config"):
        sections = re.split(r"\n(?=\w[\w ]*:\n)", _help(group))
        for section in sections:
            if not section.startswith(("Usage", "Options")):
                found |= {
                    f"{group} {verb}".strip() for verb in re.findall(r"^  ([a-z][a-z-]*)  ", section, re.MULTILINE)
                }

    assert found == set(COMMANDS)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name])
def test_every_verb_is_in_the_reference(command: str) -> None:
    reference = (DOCS / "reference.md").read_text()
    commands = reference[reference.index("## Commands") : reference.index("### Options")]
    verb, _, second = command.partition(" ")

    row = next((line for line in commands.splitlines() if f"`dibs {verb}" in line and second in line), None)

    assert row, f"dibs {command} is not in the table of commands"


def test_every_setting_is_in_the_reference() -> None:
    from dibs.settings import TABLE

    reference = (DOCS / "reference.md").read_text()

    for row in TABLE:
        default = f"`{row.default}`" if row.default else ""
        assert f"| `{row.name}` | `{row.variable}` | {default}".rstrip() in reference


def test_every_key_of_a_job_and_every_address_is_in_the_page_of_the_api() -> None:
    from dibs.daemon.routes.status import Status
    from dibs.daemon.schemas import requests, responses

    page = (DOCS / "api.md").read_text()
    routes = "".join(path.read_text() for path in (ROOT / "src" / "dibs" / "daemon").rglob("*.py"))
    addresses = re.findall(r"routes\.\w+\(\s*\"(/[^\"]+)\"", routes)

    assert len(addresses) > 15
    for address in addresses:
        assert address.replace("{number}", "17") in page, address
    for shape in (
        *(responses.WholeJob, responses.AttemptObject, Status, responses.ReasonObject),
        *(requests.NewJob, requests.SweepAct),
    ):
        assert [key for key in shape.__annotations__ if f"`{key}`" not in page and f'"{key}"' not in page] == []


def test_every_key_of_a_sweep_is_in_the_page_of_the_api() -> None:
    from dibs.sweeps.spec import parameter_object, read_parameter, read_spec, spec_object

    curve = {"name": "z", "distribution": "beta", "a": 1, "b": 2}
    parameters = [
        {"name": "x", "values": ["1", "2"], "weights": [0.25, 0.75]},
        {"name": "y", "low": 0, "high": 1},
        curve,
    ]
    metric = {"name": "loss", "goal": "min", "take": "best", "target": 0.1}
    spec = spec_object(
        read_spec({"command": "echo {x}", "parameters": parameters[:1], "method": "random", "samples": 2})
    )
    shown = (DOCS / "api.md").read_text().partition("A spec has")[2].partition("```")[0]

    keys = (
        {key for each in parameters for key in parameter_object(read_parameter(each))}
        | spec.keys()
        | metric.keys()
    )
    assert {key for key in keys if f"`{key}`" not in shown} == set()


def test_every_reason_and_error_code_is_documented() -> None:
    from dibs.daemon.http.errors import _DEFAULTS, _STATUS

    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    reference, page = (DOCS / "reference.md").read_text(), (DOCS / "api.md").read_text()

    reasons = set(re.findall(r"Reason\(\s*\"([a-z-]+)\"", sources))
    assert {code for code in reasons if f"`{code}`" not in reference} == set()
    codes = {*_STATUS, *(code for code, _, _ in _DEFAULTS.values())}
    assert {code for code in codes if f"`{code}`" not in page} == set()


def test_every_wish_word_is_documented() -> None:
    from dibs.inputs.wishes import LISTED

    page = (DOCS / "reference.md").read_text()
    table = page[page.index("<!-- fields: all -->") : page.index("<!-- end of fields -->")]
    rows = [re.split(r" ?(?<!\\)\| ?", line) for line in table.splitlines() if line.startswith("| `")]

    assert sorted(row[1].strip("`") for row in rows if "list" in row[4].split(", ")) == sorted(
        {field.word for field in LISTED.values()}
    )
    assert [word for word in LISTED if f"`{word}`" not in page] == []


def test_every_variable_is_documented() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    reference = (DOCS / "reference.md").read_text()

    used = set(re.findall(r"\bDIBS_[A-Z_]+[A-Z]\b", sources)) | {
        "CUDA_VISIBLE_DEVICES",
        "XDG_STATE_HOME",
        "NO_COLOR",
    }

    assert {name for name in used if f"`{name}`" not in reference} == set()


def test_every_event_and_its_keys_are_documented(bash: Bash) -> None:
    reference = (DOCS / "reference.md").read_text()
    list_ = "echo a\\n[num_gpus=9] echo b\\nexit $((DIBS_ATTEMPT == 1))\\n"

    said, _ = bash.start(f"printf '{list_}' | dibs run --json --retries 1 || true").communicate(timeout=PATIENCE)

    events = [json.loads(line) for line in said.splitlines()]
    assert {"queued", "refused", "started", "ended", "finished"} <= {event["event"] for event in events}
    for event in events:
        assert f"| `{event['event']}` |" in reference
        assert [key for key in event if f"`{key}`" not in reference] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_is_the_golden_one(command: str) -> None:
    name = "-".join(["dibs", *command.split(), "help"])

    _compare_with_golden(f"{name}.txt", _help(command))


def test_no_file_names_a_path_of_one_machine() -> None:
    files = [
        *PAGES,
        ROOT / "Makefile",
        ROOT / ".ci" / "run",
        *(ROOT / "examples").iterdir(),
        ROOT / "CHANGELOG.md",
    ]

    for file in files:
        if file.is_file():
            assert not re.search(r"/home/|/root/|/work/|/Users/", file.read_text()), file


@functools.cache
def _help(command: str) -> str:
    environment = {**kept_environment(), "PATH": commands_for_shells(), "COLUMNS": "100", "NO_COLOR": "1"}
    argv = ["dibs", *command.split(), "--help"]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout


def _compare_with_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("DIBS_BLESS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.relative_to(ROOT)} is missing: `make bless` writes it"
    assert text == path.read_text(), "`make bless` rewrites it, where the new text is meant"


def _anchors(page: Path) -> set[str]:
    """Headings as GitHub and the site turn them into anchors."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_fences_name_a_language_and_nothing_else():
    """The site's reader takes `bash exit=1` for text, and everything up to the next fence for code."""
    found = [
        f"{page.name}:{number}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if line.startswith("```") and not re.fullmatch(r"```[a-z]*", line)
    ]

    assert found == []
