"""Calls to other workers over HTTP: Connect's REST API, signed where it has to be."""

from collections.abc import Callable
from typing import Final

import httpcore

from headgate.herder.messages import Call, ErrorKind, Failure, Result
from headgate.ports import TransportError
from headgate.topics.config_events import SessionKeyChanged
from headgate_rest.client_calls import Question, question, result_of
from headgate_rest.http import HttpResponse
from headgate_rest.server import client_context
from headgate_rest.settings import RestSettings
from headgate_rest.signature import NO_KEY, signature_headers

TIMEOUT_HEADER: Final = "Headgate-Timeout-Ms"
"""How long the caller waits. Java waits 90 s whatever it says."""
CONNECT_S_MAX: Final = 5.0
IDLE_S: Final = 20.0
"""Shorter than servers keep idle connections, so that a request meets no connection that closes."""

ALWAYS_SENT: Final = (("User-Agent", "headgate"), ("Accept", "application/json"))

NOT_SENT: Final = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.PoolTimeout,
    httpcore.UnsupportedProtocol,
)


class PeerClient:
    """A pool of connections for any number of threads."""

    def __init__(
        self,
        settings: RestSettings,
        session_key: Callable[[], SessionKeyChanged | None],
        sessioned: Callable[[], bool],
    ) -> None:
        self._algorithm = settings.signature_algorithm
        self._session_key = session_key
        self._sessioned = sessioned
        tls = settings.tls
        self._pool = httpcore.ConnectionPool(
            client_context(tls) if tls.certificate or tls.trusted else None,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=IDLE_S,
        )

    def call(self, url: str, call: Call, hops: int, timeout_ms: int) -> Result:
        """Ask the worker at `url`.

        A worker that could not be reached, or could not be told in a way that it believes, was
        asked nothing: the result is NOT_READY, and asking again, it or another, does no harm.

        Raises:
            TransportError: no answer came in time, or none will: it may have happened all the same.
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
            return Failure(
                ErrorKind.NOT_READY, f"{url!r} could not be reached: it is no address ({error})"
            )
        try:
            return result_of(call, self._send(address, asked, headers, timeout_ms))
        except NOT_SENT as error:
            return Failure(ErrorKind.NOT_READY, f"{url} could not be reached: {error}")
        except httpcore.TimeoutException as error:
            raise TransportError(
                f"{url} did not answer within {timeout_ms} ms; it may have acted all the same"
            ) from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise TransportError(
                f"{url} broke off before its answer ({error}); it may have acted all the same"
            ) from error

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
