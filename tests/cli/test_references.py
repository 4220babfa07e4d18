"""How jobs are named, and how the shell completes their names."""

import os
import shutil
import subprocess
import time

import pytest
from click.shell_completion import ShellComplete
from hypothesis import given
from hypothesis import strategies as st

from cli.fake_daemon import a_job, a_sweep
from dibs.cli.main import dibs as command
from dibs.cli.references import complete_jobs, in_chunks, is_number
from stories.outside import commands_for_shells, kept_environment


@given(st.lists(st.integers()), st.integers(1, 9))
def test_chunks_lose_nothing(ids, size):
    chunks = list(in_chunks(ids, size))

    assert [one for chunk in chunks for one in chunk] == ids
    assert all(0 < len(chunk) <= size for chunk in chunks)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "١٧", "1e3", "0x1", "9" * 16, " 1"])
def test_what_is_no_plain_number_is_asked_for(text):
    assert not is_number(text)


def test_plain_numbers_cost_no_question(daemon, typed):
    daemon.jobs = {1: a_job(1), 2: a_job(2)}

    typed("hold", "1", "2")

    assert [path for _, path, _, _ in daemon.calls] == ["/v1/jobs/act"]


def test_the_rest_is_one_question(daemon, typed):
    daemon.jobs = {number: a_job(number) for number in range(1, 5)}
    daemon.names = {"@~2": [2], "a,b": [3], "17_4": [4]}

    typed("hold", "@", "@~2", "a,b", "17_4", "1-2")

    assert daemon.queries("/v1/find") == [{"ref": ["@", "@~2", "a,b", "17_4", "1-2"]}]
    assert daemon.bodies()[0]["ids"] == [4, 2, 3, 1]


def test_hundreds_of_names_are_asked_in_several_questions(daemon, typed):
    daemon.jobs = {number: a_job(number) for number in range(1, 251)}
    daemon.names = {f"name-{number}": [number] for number in range(1, 251)}

    typed("hold", *daemon.names)

    assert len(daemon.queries("/v1/find")) == 3
    assert len(daemon.bodies()[0]["ids"]) == 250


@pytest.mark.parametrize("reference", ["no-such-name", "\udcff", "x" * 299, "%2e%2e", "../../x", "a b&c=d#e"])
def test_a_name_that_there_is_not_is_one_sentence(daemon, typed, reference):
    done = typed("why", reference)

    assert done.status == 1
    assert done.stderr.startswith("dibs: error: cannot find job ")


@pytest.mark.parametrize(
    "words", [["log", "0"], ["info", "00"], ["kill", "3", "0"], ["add", "--after", "0", "--", "a"]]
)
def test_there_is_no_job_0(daemon, typed, words):
    daemon.jobs[3] = a_job(3)

    done = typed(*words)

    assert done.status == 1
    assert done.stderr == "dibs: error: cannot find job 0\n  `dibs ls --all` lists every job of this queue\n"
    assert daemon.bodies() == []


@pytest.mark.parametrize("reference", ["", "x" * 301, "a\0b"])
def test_what_can_be_no_name_is_refused(daemon, typed, reference):
    assert typed("why", reference).status == 2
    assert daemon.calls == []


SHELLS = {
    # What the shell itself does when TAB is pressed, and one completion a line.
    "bash": """
        source <(dibs completion bash)
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dibs_completion dibs
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        autoload -U compinit; compinit -D -u
        eval "$(dibs completion zsh)"
        words=("$@"); CURRENT=$#
        compadd() { for one in "${(@P)${@[-1]}}"; do print -r -- "$one"; done }
        _describe() { for one in "${(@P)3}"; do print -r -- "${one%%:*}"; done }
        _dibs_completion
    """,
    "fish": """
        dibs completion fish | source
        complete -C (string join ' ' -- $argv) | string split -f1 \\t
    """,
}


def completed(words, incomplete=""):
    """The words that click hands to the shell."""
    complete = ShellComplete(command, {}, "dibs", "_DIBS_COMPLETE")
    return [item.value for item in complete.get_completions(words.split(), incomplete)]


def pressing_tab(shell, *words):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    ours = {name: value for name, value in os.environ.items() if name.startswith("DIBS_")}
    environ = kept_environment() | ours | {"PATH": f"{commands_for_shells()}:{os.environ['PATH']}"}
    script = SHELLS[shell]
    argv = [shell, *([] if shell == "fish" else ["-f"] if shell == "zsh" else ["--norc"]), "-c", script]
    argv += [*(["--"] if shell == "fish" else ["-"]), *words]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    return [line for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_states_are_completed(daemon, shell):
    assert set(pressing_tab(shell, "dibs", "re")) == {"report", "retry", "release", "resume"}
    assert set(pressing_tab(shell, "dibs", "kill", "--s")) == {"--signal"}
    assert set(pressing_tab(shell, "dibs", "ls", "--state", "run")) == {"running"}


@pytest.mark.parametrize("shell", SHELLS)
def test_jobs_are_completed_by_number_and_name(daemon, shell):
    daemon.jobs = {17: a_job(17, name="train"), 18: a_job(18), 205: a_job(205, command="a: b\tc\n$(touch BAD)")}

    assert set(pressing_tab(shell, "dibs", "kill", "1")) == {"17", "18"}
    assert set(pressing_tab(shell, "dibs", "log", "-f", "t")) == {"train"}
    assert set(pressing_tab(shell, "dibs", "why", "2")) == {"205"}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("kill", ["6", "3", "2", "1"]),
        ("cancel", ["6", "3", "2", "1"]),
        ("wait", ["6", "3", "2", "1"]),
        ("hold", ["1"]),
        ("release", ["2"]),
        ("suspend", ["3"]),
        ("resume", ["6"]),
        ("edit", ["2", "1"]),
        ("edit 1 --before", ["1"]),
        ("retry", ["5", "4"]),
        ("log", ["6", "5", "4", "3", "2", "1"]),
        ("add --after", ["6", "5", "4", "3", "2", "1"]),
        ("add --after-any", ["6", "5", "4", "3", "2", "1"]),
        ("add -P", ["a", "vision"]),
        ("ls -P", ["a", "vision"]),
        ("pause -P", ["a", "vision"]),
        ("clean -P", ["a", "vision"]),
    ],
)
def test_what_a_command_is_for_is_completed(daemon, words, found):
    states = ["queued", "held", "running", "failed", "succeeded", "suspended"]
    daemon.jobs = {number: a_job(number, state, project="vision") for number, state in enumerate(states, 1)}
    daemon.jobs[1]["project"] = "a"

    assert completed(words) == found


def test_the_last_job_of_a_list_and_the_names_of_settings_are_completed(daemon):
    daemon.jobs = {17: a_job(17), 25: a_job(25)}

    assert completed("add --after", "17,2") == ["17,25"]
    assert completed("config set", "gpu_o") == ["gpu_order"]


@pytest.mark.parametrize("shell", SHELLS)
def test_sweeps_and_what_is_done_to_them_are_completed(daemon, shell):
    daemon.sweeps = {3: a_sweep(3, name="lr"), 31: a_sweep(31)}

    assert set(pressing_tab(shell, "dibs", "sweep", "re")) == {"results", "release", "resume", "retry-failed"}
    assert set(pressing_tab(shell, "dibs", "sweep", "--prune-")) == {"--prune-after"}
    assert set(pressing_tab(shell, "dibs", "sweep", "show", "3")) == {"3", "31"}
    assert set(pressing_tab(shell, "dibs", "sweep", "stop", "l")) == {"lr"}


@pytest.mark.parametrize("verb", ["run", "add", "sweep"])
def test_behind_an_unfinished_parameter_nothing_is_said(daemon, verb):
    assert pressing_tab("bash", "dibs", verb, "-p", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])  # click's script for fish takes a comma for the word's end
def test_the_last_of_several_states_is_completed(daemon, shell):
    found = pressing_tab(shell, "dibs", "ls", "--state", "failed,su")

    assert set(found) == {"failed,succeeded", "failed,submitted", "failed,suspended"}


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_daemon_there_is_nothing_to_choose_from_and_none_is_started(socket, shell):
    assert pressing_tab(shell, "dibs", "kill", "1") == []
    assert not os.path.exists(socket)


def test_a_daemon_that_does_not_answer_is_left_alone_soon(daemon):
    daemon.slow = 30.0
    began = time.monotonic()

    assert complete_jobs("") == []
    assert time.monotonic() - began < 15.0


@pytest.mark.parametrize(
    "name", ["a b", "$(rm -rf x)", "a\nb", "\x1b[2J", "a;b", "'", "-rf x", "\u202ea", "\udcff"]
)
def test_a_name_that_a_shell_might_obey_is_not_offered(daemon, name):
    daemon.jobs = {1: a_job(1, name=name)}

    assert [item.value for item in complete_jobs("")] == ["1"]


def test_the_description_is_one_harmless_line(daemon):
    daemon.jobs = {1: a_job(1, command="a:b\tc\n\x1b[2J")}

    assert [item.help for item in complete_jobs("")] == ["queued - a b c\\n\\x1b[2J"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_command(typed, shell):
    done = typed("completion", shell)

    assert done.status == 0
    assert "_DIBS_COMPLETE" in done.stdout


def test_an_unknown_shell_is_refused(typed):
    assert typed("completion", "tcsh").status == 2
