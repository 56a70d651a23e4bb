"""``headgate up --metrics HOST:PORT``: what its workers do, for Prometheus."""

import threading
from collections.abc import Iterable
from wsgiref.simple_server import WSGIServer

from headgate_runtime.command.errors import UpError
from headgate_runtime.up.snapshot import Snapshot

EXPECTED = "expected HOST:PORT, such as 127.0.0.1:9404"


def address_of(text: str) -> tuple[str, int]:
    """
    Raises:
        UpError: `text` is no host and port.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UpError(f"--metrics {text}: {EXPECTED}")
    return host.strip("[]"), int(port)


class MetricsServer:
    """Shows the last snapshot that it was given; listens from its construction on.

    Raises:
        UpError: the address is taken, or prometheus-client is not installed.
    """

    def __init__(self, text: str) -> None:
        try:
            from prometheus_client import Metric, start_http_server

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
            started: tuple[WSGIServer, threading.Thread] = start_http_server(
                port, host, registry_of(collect)
            )
        except OSError as error:
            raise UpError(f"--metrics {text}: {error.strerror or error}") from None
        self._server, self._thread = started

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
