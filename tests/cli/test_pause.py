"""`dibs pause` and `unpause`."""

import json

import pytest


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (["pause"], "/v1/pause", {}),
        (["unpause"], "/v1/unpause", {}),
        (["pause", "--project", "a"], "/v1/pause", {"project": "a"}),
        (["unpause", "-P", "a"], "/v1/unpause", {"project": "a"}),
        (["pause", "--gpu", "1"], "/v1/gpus/act", {"action": "drain", "gpus": ["1"]}),
        (["unpause", "--gpu", "0,1"], "/v1/gpus/act", {"action": "undrain", "gpus": ["0", "1"]}),
    ],
)
def test_the_queue_a_project_or_a_gpu(daemon, typed, words, path, body):
    done = typed(*words)

    assert [(called, sent) for _, called, _, sent in daemon.calls] == [(path, body)]
    assert done.status == 0
    assert done.stderr


def test_json_tells_whether_it_changed(daemon, typed):
    assert json.loads(typed("pause", "--json").stdout) == {"changed": True}


@pytest.mark.parametrize("words", [["--project", "a", "--gpu", "1"], ["--project", ""], ["--gpu", "x y"]])
def test_what_cannot_be_meant_is_refused(daemon, typed, words):
    assert typed("pause", *words).status == 2
    assert daemon.calls == []
