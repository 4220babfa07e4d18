"""A tiny reverse proxy: everything below a path prefix goes to the daemon's door, without the prefix."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_OF_THE_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@contextmanager
def below(prefix: str, address: str) -> Iterator[str]:
    """The address of the page below `prefix`, on a port of its own."""
    target = urlsplit(address).netloc

    class Handler(BaseHTTPRequestHandler):
        def _pass(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            there = http.client.HTTPConnection(target, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            there.request(self.command, self.path.removeprefix(prefix), body or None, headers)
            answer = there.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OF_THE_CONNECTION:
                    self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # either side may go away in the middle of a stream
                while piece := answer.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()
            there.close()

        do_GET = do_POST = do_PATCH = _pass

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
