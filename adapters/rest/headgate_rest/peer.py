"""Calls to other workers over HTTP, by Connect's REST API. Internal requests are signed."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import httpcore

from headgate.herder.messages import Call, ErrorKind, Failure, Result
from headgate.ports import TransportError
from headgate.topics.config_events import SessionKeyChanged
from headgate_rest.client_calls import Question, question, result_of
from headgate_rest.http import HttpResponse
from headgate_rest.limits import SELDOM_S
from headgate_rest.server import client_context
from headgate_rest.settings import RestSettings
from headgate_rest.signature import NO_KEY, signature_headers

log = logging.getLogger(__name__)

TIMEOUT_HEADER: Final = "Headgate-Timeout-Ms"
"""Header with the time for which the caller waits. A Java worker ignores it and takes up to 90 s.
"""
CONNECT_S_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 100
IDLE_S: Final = 20.0
"""How long idle connections are kept. Servers keep them longer, so no request is sent on a
connection that is closing."""

ABOUT_UNREACHABLE: Final = (
    "%s: what only that worker can do is not done. Check its rest.advertised.host.name, "
    "rest.advertised.port and rest.advertised.listener, and the network from here"
)
ALWAYS_SENT: Final = (("User-Agent", "headgate"), ("Accept", "application/json"))

NOT_SENT: Final = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.UnsupportedProtocol,
)


class PeerClient:
    """The client of other workers, with a pool of connections. For any number of threads."""

    def __init__(
        self,
        settings: RestSettings,
        session_key: Callable[[], SessionKeyChanged | None],
        sessioned: Callable[[], bool],
    ) -> None:
        self._algorithm = settings.signature_algorithm
        self._session_key = session_key
        self._sessioned = sessioned
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}
        """Monotonic time, by address, until which the log does not repeat that it could not be
        reached."""
        tls = settings.tls
        self._pool = httpcore.ConnectionPool(
            client_context(tls) if tls.certificate or tls.trusted else None,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=20,
            keepalive_expiry=IDLE_S,
        )

    def call(self, url: str, call: Call, hops: int, timeout_ms: int) -> Result:
        """Send a call to the worker at `url` and return its result.

        The result is UNREACHABLE if the call was not sent, and NOT_READY if the worker refused its
        signature. In both cases the call had no effect, and may be made again, to the same worker
        or another one.

        Raises:
            TransportError: no answer came in time, or none will come. The worker may still have
                acted.
        """
        asked = question(call, hops)
        headers = {**asked.headers, TIMEOUT_HEADER: str(timeout_ms)}
        if asked.body is not None:
            headers["Content-Type"] = "application/json"
        if asked.internal and self._sessioned():
            key = self._session_key()
            if key is None:
                return Failure(ErrorKind.NOT_READY, NO_KEY)
            headers |= signature_headers(key, asked.body or b"", self._algorithm)
        try:
            address = httpcore.URL(url.rstrip("/") + asked.path)
        except ValueError as error:
            return self._unreachable(url, f"{url!r} could not be reached: no address ({error})")
        try:
            return result_of(call, self._send(address, asked, headers, timeout_ms))
        except httpcore.PoolTimeout:
            text = f"{url} was not asked: {CONNECTIONS_MAX} connections to workers are busy"
            return Failure(ErrorKind.NOT_READY, text)
        except NOT_SENT as error:
            return self._unreachable(url, f"{url} could not be reached: {error}")
        except httpcore.TimeoutException as error:
            raise TransportError(
                f"{url} did not answer within {timeout_ms} ms; it may still have acted"
            ) from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise TransportError(
                f"{url} broke off before its answer ({error}); it may still have acted"
            ) from error

    def _unreachable(self, url: str, text: str) -> Failure:
        """Return UNREACHABLE, and log it, at most once a minute for each address."""
        now = time.monotonic()
        with self._lock:
            if now < self._told.get(url, now):
                return Failure(ErrorKind.UNREACHABLE, text)
            self._told = {each: until for each, until in self._told.items() if now < until}
            self._told[url] = now + SELDOM_S
        log.warning(ABOUT_UNREACHABLE, text)
        return Failure(ErrorKind.UNREACHABLE, text)

    def _send(
        self, address: httpcore.URL, asked: Question, headers: dict[str, str], timeout_ms: int
    ) -> HttpResponse:
        seconds = timeout_ms / 1000
        answer = self._pool.request(
            asked.method,
            address,
            headers=[*ALWAYS_SENT, *headers.items()],
            content=asked.body,
            extensions={
                "timeout": {
                    "connect": min(seconds, CONNECT_S_MAX),
                    "pool": seconds,
                    "read": seconds,
                    "write": seconds,
                }
            },
        )
        kept = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in answer.headers
        }
        return HttpResponse(answer.status, answer.content, kept)

    def close(self) -> None:
        self._pool.close()
