"""Results as people look for them, whatever jobs are called."""

import getpass
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.backends.protocol import AttemptRef, Submission
from dibs.engine.launch import browse
from dibs.engine.launch.browse import BrowsableFolders, fill_in, harmless
from dibs.engine.remote.round import _make_folder_for_output
from dibs.engine.remote.state import wanted_by
from dibs.model.jobs import ArrayTask, Attempt, Command, Job, JobId, Outcome, Request

UGLY = [
    *("../../x", "/etc/passwd", ".", "..", "", "-rf", "a\nb", "%2e%2e", "%", "~", "a/b", "\0", "é" * 500),
    *("\u202egnp.exe", "аdmin", "admin", "Admin", "name ", " name", "x" * 4096, "x" * 4097, "\udcff", "\ud800"),
    *(".hidden", "a.b", "a b", "con", "*", "?", "%00", "x" * 100, "x" * 101, "\\ud800"),
]


def a_job(number=17, **more):
    return Job(id=JobId(number), request=Request(command=Command.line("train"), **more))


def an_attempt(folder, number=1):
    return Attempt(
        job=JobId(17), number=number, claims=(), boot_id="boot", opened_at=0.0, folder=os.fspath(folder)
    )


@pytest.fixture
def root(tmp_path):
    return tmp_path / "results é\n"


def links_under(root):
    return sorted(
        os.path.relpath(os.path.join(folder, name), root)
        for folder, folders, files in os.walk(root)
        for name in (*folders, *files)
        if os.path.islink(os.path.join(folder, name))
    )


# -- links -----------------------------------------------------------------------------------------------


def test_a_job_is_found_under_its_project_and_name(root, tmp_path):
    (tmp_path / "1.1").mkdir()
    (tmp_path / "1.1" / "stdout").write_text("loss 0.1")
    results = BrowsableFolders(str(root))

    results.begin(a_job(project="vision", name="train"), an_attempt(tmp_path / "1.1"))
    results.begin(a_job(18), an_attempt(tmp_path / "1.1"))

    assert (root / "vision/train/17/stdout").read_text() == "loss 0.1"
    assert links_under(root) == ["default/job/18", "vision/train/17"]


def test_a_retry_points_to_the_new_attempt_and_there_is_a_link_at_every_moment(root, tmp_path, monkeypatch):
    results, job = BrowsableFolders(str(root)), a_job()
    results.begin(job, an_attempt(tmp_path / "1.1"))
    monkeypatch.setattr(browse.os, "unlink", _only_new(os.unlink))

    results.begin(job, an_attempt(tmp_path / "1.2", 2))

    assert os.readlink(results.link(job)) == str(tmp_path / "1.2")
    assert os.listdir(root / "default/job") == ["17"]


def test_what_is_cleaned_away_leaves_no_empty_folders(root, tmp_path):
    results = BrowsableFolders(str(root))
    for number in (1, 2):
        results.begin(a_job(number, name="train"), an_attempt(tmp_path))

    results.forget(a_job(1, name="train"))
    left = links_under(root)
    results.forget(a_job(2, name="train"))
    results.forget(a_job(3, name="never began"))

    assert left == ["default/train/2"]
    assert os.listdir(root) == []
    results.begin(a_job(4, name="train"), an_attempt(tmp_path))
    assert links_under(root) == ["default/train/4"]


def test_a_folder_of_the_user_is_neither_replaced_nor_removed(root, tmp_path):
    results = BrowsableFolders(str(root))
    (root / "default/job/17").mkdir(parents=True)

    results.begin(a_job(), an_attempt(tmp_path))  # the job runs all the same
    results.forget(a_job())

    assert (root / "default/job/17").is_dir()


def test_folders_that_were_removed_are_made_again(root, tmp_path):
    results = BrowsableFolders(str(root))
    results.begin(a_job(1), an_attempt(tmp_path))
    os.unlink(root / "default/job/1")
    os.removedirs(root / "default/job")

    results.begin(a_job(2), an_attempt(tmp_path))

    assert links_under(root) == ["default/job/2"]


def test_without_a_root_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = BrowsableFolders("")

    results.begin(a_job(), an_attempt("/attempts/1.1"))
    results.end(a_job(), an_attempt("/attempts/1.1"), Outcome(exit_code=0))
    results.forget(a_job())

    assert os.listdir(tmp_path) == []
    assert results.streams(a_job(), "/attempts/1.1") == ("/attempts/1.1/stdout", "/attempts/1.1/stderr")


def test_another_job_of_the_same_name_costs_one_call(root, tmp_path, monkeypatch):
    results = BrowsableFolders(str(root))
    results.begin(a_job(1), an_attempt(tmp_path))
    monkeypatch.setattr(browse.os, "makedirs", _never)

    results.begin(a_job(2), an_attempt(tmp_path))

    assert links_under(root) == ["default/job/1", "default/job/2"]


def test_only_so_many_folders_are_remembered(root, tmp_path, monkeypatch):
    monkeypatch.setattr(browse, "_MOST_REMEMBERED", 3)
    results = BrowsableFolders(str(root))

    for number in range(10):
        results.begin(a_job(number, name=f"n{number}"), an_attempt(tmp_path))

    assert len(results._made) == 3


# -- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UGLY)
@pytest.mark.parametrize("as_project", [True, False])
def test_no_name_leads_out_of_the_root(root, tmp_path, name, as_project):
    results = BrowsableFolders(str(root))
    job = a_job(project=name) if as_project else a_job(name=name)

    results.begin(job, an_attempt(tmp_path))

    (found,) = links_under(root)
    assert len(Path(found).parts) == 3
    assert os.path.realpath(os.path.dirname(results.link(job))).startswith(os.path.realpath(root) + "/")


def test_no_two_names_share_a_folder():
    assert len({harmless(name) for name in UGLY}) == len(UGLY)


@given(st.text(st.characters(), max_size=300))
def test_every_name_becomes_a_short_part_of_printable_ascii(name):
    part = harmless(name)

    assert part.isascii() and part.isprintable() and " " not in part
    assert 0 < len(part) <= 100
    assert "/" not in part and part[0] not in ".-~"


@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60))
def test_different_names_become_different_parts(one, other):
    assert (harmless(one) == harmless(other)) == (one == other)


def test_a_plain_name_stays_as_it_is():
    assert harmless("resnet50_lr=0.1,b=64@v2+x-1") == "resnet50_lr=0.1,b=64@v2+x-1"


# -- streams ---------------------------------------------------------------------------------------------


def test_the_file_that_a_job_named_takes_both_streams():
    task = a_job(output="/logs/%x-%A_%a-%j-%%-%z-%", name="../n", array=ArrayTask(JobId(12), 4))

    assert BrowsableFolders("").streams(task, "/attempts/1.1") == ("/logs/%2E.%2Fn-12_4-17-%-%z-%",) * 2


def test_stderr_may_have_a_file_of_its_own():
    alone, both = a_job(error="/logs/e-%3j"), a_job(output="/logs/o", error="/logs/e")

    assert BrowsableFolders("").streams(alone, "/attempts/1.1") == ("/attempts/1.1/stdout", "/logs/e-017")
    assert BrowsableFolders("").streams(both, "/attempts/1.1") == ("/logs/o", "/logs/e")


def test_the_node_stands_in_a_name_once_it_is_known():
    here, there = a_job(), a_job(on="slurm")

    assert fill_in("%u-%N", here) == f"{getpass.getuser()}-{os.uname().nodename.partition('.')[0]}"
    assert (fill_in("%N", there), fill_in("%N", there, "n2")) == ("%N", "n2")
    assert fill_in("%N", there, "n2.site.org") == "n2"  # as the shim there names its file


def test_no_folder_is_called_by_a_pattern_that_only_the_node_can_fill_in(tmp_path):
    spec = {"stdout": f"{tmp_path}/a/%N/out", "stderr": f"{tmp_path}/b/x-%N"}
    ref = AttemptRef("q1-1", 1, "/attempts/1.1")

    _make_folder_for_output(Submission(ref=ref, spec=spec, wanted=wanted_by(a_job(on="slurm").request)))

    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "b"]


def test_a_job_of_no_array_is_its_own_array():
    assert fill_in("%A_%a", a_job()) == "17_"


def _only_new(unlink):
    def remove(path):
        assert str(path).endswith(".new")
        unlink(path)

    return remove


def _never(*arguments, **more):
    raise AssertionError
