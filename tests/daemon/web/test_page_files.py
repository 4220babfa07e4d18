"""The page's files as browsers get them."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.http.test_server import an_app
from daemon.web_client import WebClient, serving_page
from dibs.daemon.web.page_files import FOLDER, PageFiles

SCRIPT = b"console.log('dibs')\n" * 200
FILES = {
    "index.html": b"<!doctype html>\n<title>dibs</title>" * 20,
    "assets/index-B7k_2xQ-.js": SCRIPT,
    "assets/style-abcdefgh.css": b"body { margin: 0 }\n" * 50,
    "assets/tiny-12345678.js": b"1",
    "assets/letters-12345678.woff2": bytes(range(256)) * 4,
    "icon.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>" * 10,
    "assets/notes.xyz": b"no kind that we know",
}


@pytest.fixture(scope="module")
def web_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebClient]:
    root = tmp_path_factory.mktemp("page")
    page = root / "page"
    for name, content in FILES.items():
        (page / name).parent.mkdir(parents=True, exist_ok=True)
        (page / name).write_bytes(content)
    (root / "secret.js").write_text("secret")
    (page / "assets" / "linked-12345678.js").symlink_to(root / "secret.js")
    with serving_page(an_app(), root / "keys", page=page) as (one, _):
        one.token = ""
        yield one


@pytest.mark.parametrize(
    ("path", "name", "kind", "keeping"),
    [
        ("/", "index.html", "text/html; charset=utf-8", "no-store"),
        (
            "/assets/index-B7k_2xQ-.js",
            "assets/index-B7k_2xQ-.js",
            "text/javascript; charset=utf-8",
            "public, max-age=31536000, immutable",
        ),
        (
            "/assets/style-abcdefgh.css",
            "assets/style-abcdefgh.css",
            "text/css; charset=utf-8",
            "public, max-age=31536000, immutable",
        ),
        (
            "/assets/letters-12345678.woff2",
            "assets/letters-12345678.woff2",
            "font/woff2",
            "public, max-age=31536000, immutable",
        ),
        ("/icon.svg", "icon.svg", "image/svg+xml", "no-cache"),
    ],
)
def test_each_file_has_its_kind_and_is_kept_for_as_long_as_it_is_true(web_client, path, name, kind, keeping):
    reply = web_client.get(path)

    assert (reply.status, reply.body) == (200, FILES[name])
    assert (reply.headers["content-type"], reply.headers["cache-control"]) == (kind, keeping)
    assert "content-encoding" not in reply.headers


def test_a_query_changes_nothing(web_client):
    assert web_client.get("/?x=1").body == FILES["index.html"]


@pytest.mark.parametrize("said", ["gzip", "br, gzip;q=0.5", "GZIP", "deflate,gzip , br"])
def test_a_reader_that_takes_gzip_gets_it(web_client, said):
    reply = web_client.get("/assets/index-B7k_2xQ-.js", Accept_Encoding=said)

    assert reply.headers["content-encoding"] == "gzip"
    assert reply.headers["vary"] == "Accept-Encoding"
    assert len(reply.body) < len(SCRIPT) / 4
    assert gzip.decompress(reply.body) == SCRIPT


@pytest.mark.parametrize("said", [None, "", "br", "gzip;q=0", "gzip; q=0.0", "xgzip"])
def test_a_reader_that_does_not_gets_it_as_it_is(web_client, said):
    reply = web_client.get("/assets/index-B7k_2xQ-.js", Accept_Encoding=said)

    assert "content-encoding" not in reply.headers
    assert reply.headers["vary"] == "Accept-Encoding"
    assert reply.body == SCRIPT


@pytest.mark.parametrize("path", ["/assets/tiny-12345678.js", "/assets/letters-12345678.woff2"])
def test_what_would_not_become_smaller_is_sent_as_it_is(web_client, path):
    assert "content-encoding" not in web_client.get(path, Accept_Encoding="gzip").headers


def test_head_tells_the_length_and_sends_nothing(web_client):
    reply = web_client.call("HEAD", "/")

    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) == len(FILES["index.html"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_files_are_only_read(web_client, method):
    reply = web_client.call(method, "/")

    assert (reply.status, reply.code) == (405, "wrong-method")
    assert reply.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/nothing",
        "/assets",
        "/assets/",
        "/assets/notes.xyz",
        "/assets/linked-12345678.js",
        "/../secret.js",
        "/assets/../../secret.js",
        "/assets/..%2f..%2fsecret.js",
        "/%2e%2e/secret.js",
        "/%2e%2e%2fsecret.js",
        "/..%5csecret.js",
        "/..;/secret.js",
        "/assets/%00",
        "/assets/index-B7k_2xQ-.js%00",
        "/assets/index-B7k_2xQ-.js/",
        "//assets/index-B7k_2xQ-.js",
        "/ASSETS/index-B7k_2xQ-.js",
        "/etc/passwd",
        "/%c0%ae%c0%ae/secret.js",
        "/.git/config",
    ],
)
def test_there_is_nothing_else(web_client, path):
    reply = web_client.get(path)

    assert (reply.status, reply.code) == (404, "not-found")
    assert b"secret" not in reply.raw.replace(b"/secret.js", b"")


def test_where_the_page_was_not_built_it_says_how(tmp_path):
    with serving_page(an_app(), tmp_path) as (web_client, _):
        reply = web_client.get("/")

    assert (reply.status, reply.code) == (404, "not-found")
    assert "npm run build" in reply.json["error"]["remedy"]


def test_a_file_that_an_upgrade_took_away_is_no_bug(tmp_path):
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("old")
    (page / "icon.svg").write_text("old")
    with serving_page(an_app(), tmp_path / "keys", page=page) as (web_client, _):
        assert web_client.get("/").body == b"old"
        (page / "index.html").unlink()
        (page / "icon.svg").unlink()

        assert web_client.get("/").body == b"old"  # read already
        reply = web_client.get("/icon.svg")

    assert (reply.status, reply.code) == (404, "not-found")
    assert "dibs daemon restart" in reply.json["error"]["remedy"]


def test_the_package_has_the_page_beside_its_code():
    assert Path(FOLDER).parent.joinpath("page_files.py").exists()
    assert "/" in PageFiles()
