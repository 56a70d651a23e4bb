"""``headgate up --metrics HOST:PORT``: the figures of its workers, for Prometheus."""

import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from headgate_runtime.command.errors import UpError
from headgate_runtime.up.snapshot import Snapshot

EXPECTED = "expected HOST:PORT, such as 127.0.0.1:9404"
CONNECTIONS_MAX: Final = 32
"""Most connections, each of which has a thread. If there are more, the oldest are closed."""
SILENT_S: Final = 30.0


def address_of(text: str) -> tuple[str, int]:
    """Return the host and the port.

    Raises:
        UpError: `text` is no host and port.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UpError(f"--metrics {text}: {EXPECTED}")
    return host.strip("[]"), int(port)


class _Handler(WSGIRequestHandler):
    timeout = SILENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal shows the table."""


class _Server(ThreadingMixIn, WSGIServer):
    """Server with a thread for each connection, and a limit: silent clients do not harm others."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        [(self.address_family, _, _, _, _), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
        self._lock = threading.Lock()
        self._open: OrderedDict[socket.socket, None] = OrderedDict()
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            if len(self._open) > CONNECTIONS_MAX:
                oldest, _ = self._open.popitem(last=False)
                _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client has gone, or was hung up on."""


def _hang_up(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has gone
        connected.shutdown(socket.SHUT_RDWR)


class MetricsServer:
    """Server of the last snapshot that it was given. It listens from its construction on.

    Raises:
        UpError: the address is taken, or prometheus-client is not installed.
    """

    def __init__(self, text: str) -> None:
        try:
            from prometheus_client import Metric, make_wsgi_app

            from headgate_runtime.observe.metrics import families, registry_of
        except ImportError:
            extra = 'pip install "headgate[rest]"'
            raise UpError(f"--metrics needs headgate[rest]: {extra}") from None
        self._snapshot: Snapshot | None = None
        host, port = address_of(text)

        def collect() -> Iterable[Metric]:
            seen = self._snapshot
            if seen is None:
                return ()
            lag = {one.name: one.lag for one in seen.connectors if one.kind == "sink"}
            return families([view for _, view in seen.views()], lag)

        try:
            self._server = _Server(host, port)
        except OSError as error:
            raise UpError(f"--metrics {text}: {error.strerror or error}") from None
        self._server.set_app(make_wsgi_app(registry_of(collect)))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
