"""Settings: /etc, then the user's own file, then variables, then flags; and what is said about mistakes."""

from pathlib import Path

import pytest

from dibs import settings
from dibs.errors import BadInput
from dibs.settings import TABLE, Settings, find_settings, load_settings, user_file


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(settings, "SYSTEM_FILE", str(tmp_path / "etc.toml"))
    (tmp_path / "config" / "dibs").mkdir(parents=True)
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def write(environ: dict[str, str], text: str) -> str:
    path = user_file(environ)
    Path(path).write_text(text)
    return path


def test_without_files_and_variables_everything_is_as_the_table_says(environ):
    assert load_settings(environ) == Settings()
    assert {row.field for row in TABLE} == {*Settings.__slots__}
    assert all(row.read(row.default) == row.value_by_default for row in TABLE)


def test_the_later_source_wins(environ, tmp_path):
    (tmp_path / "etc.toml").write_text('gpus = "0"\nretention = "1d"\ngpu_failures = 7\nlog_limit = "2M"\n')
    path = write(environ, 'retention = "2h"\ngpu_failures = 8\nlog_limit = "3M"\n')
    environ |= {"DIBS_GPU_FAILURES": "9", "DIBS_LOG_LIMIT": "4M"}

    found = {one.setting.name: one for one in find_settings(environ, {"log_limit": "5M"})}

    assert (found["gpus"].value, found["gpus"].source) == ("0", str(tmp_path / "etc.toml"))
    assert (found["retention"].value, found["retention"].source) == (7200.0, path)
    assert (found["gpu_failures"].value, found["gpu_failures"].source) == (9, "DIBS_GPU_FAILURES")
    assert (found["log_limit"].value, found["log_limit"].source) == (5 << 20, "--log_limit")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\ngpu_failure = 3", ["line 2", "'gpu_failure'", "did you mean gpu_failures?"]),
        ("[queue]\nx = 1", ["line 2", "'queue.x'", "dibs knows gpus"]),
        ("gpus = 3", ["line 1", "cannot read 3 as gpus"]),
        ("[backends.slurm]\nrot = 'x'", ["line 2", "'backends.slurm.rot'", "did you mean backends.slurm.root?"]),
        ("[backends.slurm]\nroot = 'x'", ["line 2", "'x' as backends.slurm.root", "absolute"]),
        ("[backends.slurm]\noptions = 'gpu'", ["as backends.slurm.options", "partition=gpu"]),
        ("default_backend = 'ray'", ["as default_backend", "local, slurm"]),
        ("# x\nretention = '3 parsecs'", ["line 2", "'3 parsecs' as retention", "30d"]),
        ("retention = '0d'", ["as retention"]),
        ("preemptible = 'a,,b'", ["as preemptible", "on, off, or names"]),
        ("preemptible = 'a,on'", ["as preemptible"]),
        ("preemptible = 3", ["as preemptible"]),
        ("slice = '30'", ["'30' as slice", '"off", or a time like "30m"']),
        ("slice = true", ["as slice"]),
        ("slice = '0m'", ["as slice"]),
        ("gpu_failures = true", ["cannot read True as gpu_failures"]),
        ("gpu_failures = -1", ["as gpu_failures"]),
        ("gpu_failures = 1e300", ["as gpu_failures"]),
        ("quick_seconds = nan", ["as quick_seconds"]),
        ("log_limit = '1K'", ["as log_limit"]),
        ("notify_on = 'sometimes'", ["as notify_on", "failure, end, never"]),
        ("results_folder = 'here'", ["as results_folder", "absolute"]),
        ("no_start = 'perhaps'", ["as no_start"]),
        ("min_free = -1", ["as min_free", "a whole number from 0"]),
        ("gpu_order = 'hottest'", ["as gpu_order", "emptiest, coolest, last, or GPUs like 3,2"]),
        ("gpu_order = '1,1'", ["as gpu_order"]),
        ("ignore_memory = '1K'", ["as ignore_memory", "200M"]),
        ("ignore_memory = true", ["as ignore_memory"]),
        ("respect_graphics = 2", ["as respect_graphics", "true or false"]),
        ("gpus = \n", ["cannot read", "line 1"]),
        ("gpus = '0'\ngpus = '1'", ["cannot read"]),
        ("gpus = '0; rm'", ["as gpus"]),
        ("gpus = 'é'", ["as gpus", "GPUs like"]),
        ("gpus = '0,1x'", ["as gpus"]),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_place(environ, text, words):
    path = write(environ, text)

    with pytest.raises(BadInput) as refusal:
        load_settings(environ)

    said = f"{refusal.value.message}; {refusal.value.remedy}"
    assert path in said
    assert all(word in said for word in words), said


def test_a_mistake_in_a_variable_names_the_variable(environ):
    with pytest.raises(BadInput, match="DIBS_RETENTION: cannot read 'x' as retention"):
        load_settings({**environ, "DIBS_RETENTION": "x"})


def test_a_file_that_is_no_text_or_a_folder_is_one_sentence(environ):
    path = Path(user_file(environ))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="it is not text"):
        load_settings(environ)
    path.unlink()
    path.mkdir()

    with pytest.raises(BadInput, match="directory"):
        load_settings(environ)


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("DIBS_POOL", "0,0,1", "gpus", "0,0,1"),
        ("DIBS_POOL", "", "gpus", ""),
        ("DIBS_RETENTION", "never", "retention", None),
        ("DIBS_RETENTION", "1.5w", "retention", 907200.0),
        ("DIBS_NO_START", "1", "no_start", True),
        ("DIBS_NO_START", "", "no_start", False),
        ("DIBS_QUICK_SECONDS", "0.5", "quick_seconds", 0.5),
        ("DIBS_GPU_ORDER", "coolest", "gpu_order", "coolest"),
        ("DIBS_GPU_ORDER", "3,GPU-1f", "gpu_order", "3,GPU-1f"),
        ("DIBS_MIN_FREE", "2", "min_free", 2),
        ("DIBS_RESPECT_GRAPHICS", "yes", "respect_graphics", True),
        ("DIBS_IGNORE_MEMORY", "200M", "ignore_memory", 200 << 20),
        ("DIBS_IGNORE_MEMORY", "0", "ignore_memory", 0),
        ("DIBS_RESULTS_FOLDER", "/data/results", "results_folder", "/data/results"),
    ],
)
def test_variables_are_read_as_what_they_are(environ, variable, value, field, expected):
    assert getattr(load_settings({**environ, variable: value}), field) == expected


def test_without_a_home_there_is_still_a_place_for_the_file(monkeypatch):
    assert user_file({"HOME": "/h"}) == "/h/.config/dibs/config.toml"
    assert user_file({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == "/h/.config/dibs/config.toml"
    assert user_file({}).endswith("/.config/dibs/config.toml")


def test_a_table_of_a_file_and_names_with_dots_say_the_same(environ):
    write(environ, '[backends.slurm]\nroot = "/shared"\nssh = "ssh -p 2"\noptions = {partition = "gpu"}\n')
    table = load_settings(environ)
    write(
        environ,
        'backends.slurm.root = "/shared"\nbackends.slurm.ssh = "ssh -p 2"\n'
        'backends.slurm.options = "partition=gpu"\n',
    )

    assert load_settings(environ) == table
    assert (table.backends_slurm_root, table.backends_slurm_ssh) == ("/shared", ("ssh", "-p", "2"))
    assert table.backends_slurm_options == (("partition", "gpu"),)
