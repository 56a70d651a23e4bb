"""A gate in front of a schema registry, as companies have it: TLS, and a login with user and
password."""

import base64
import http.client
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

USER_INFO = "bob:pass:word/1"


class _Gate(http.server.BaseHTTPRequestHandler):
    """A handler that passes on each request that has the login."""

    behind: str | None = None
    """Address of the registry. None: there is no registry, and every path is unknown."""

    def log_message(self, format: str, *args: object) -> None: ...

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        login = "Basic " + base64.b64encode(USER_INFO.encode()).decode()
        if self.headers.get("Authorization") != login:
            self._answer(401, b'{"error_code":401,"message":"Unauthorized"}')
        elif self.behind is None:
            self._answer(404, b'{"error_code":40403,"message":"Schema not found"}')
        else:
            to = urlsplit(self.behind)
            connection = http.client.HTTPConnection(str(to.hostname), to.port, timeout=30)
            kind = self.headers.get("Content-Type", "application/json")
            connection.request(self.command, to.path + self.path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            self._answer(answer.status, answer.read())
            connection.close()

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def gate(pem: Path, behind: str | None = None, *, client_ca: str | None = None) -> Iterator[str]:
    """Serve a gate with the certificate ``server``, and yield its address. With `client_ca`, only
    clients with a certificate of that authority may come in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem / "server.pem", pem / "server.key")
    if client_ca is not None:
        context.load_verify_locations(pem / f"{client_ca}.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    handler = type("Gate", (_Gate,), {"behind": behind})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # Handshakes are those of each call's own thread.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
