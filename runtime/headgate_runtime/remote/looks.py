"""REST requests to workers about what they are doing, to all at once."""

import json
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import httpcore

from headgate import wire
from headgate.herder.messages import WorkerView
from headgate_runtime.worker.daemon_threads import DaemonThreads

WORKER: Final = "/headgate/worker"
"""Path of a worker's view. A Java worker does not know it."""
ALL_S: Final = 3.0
"""How long all workers together may take to answer, in seconds. A command waits for them."""
AT_ONCE: Final = 256
LATE: Final = f"it has not answered within {ALL_S:g} s"
TELLS_NOTHING: Final = "it is a Java worker or another Headgate, which does not tell"
_LIMITS: Final = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), ALL_S)}
_PORTS: Final = {"http": 80, "https": 443}
Headers: TypeAlias = Sequence[tuple[str, str]]


class Looks:
    def __init__(self, where: str, trusted: ssl.SSLContext, headers: Headers, login: Headers):
        """Send `login` only to the worker at `where`. The user has not said that the others may see
        it."""
        self._where = where
        self._headers = headers
        self._login = login
        # A silent worker keeps its connection. Without a limit, no request waits for another's
        # connection.
        self._pool = httpcore.ConnectionPool(ssl_context=trusted, max_connections=None)

    def close(self) -> None:
        self._pool.close()

    def views(self, urls: Iterable[str]) -> Mapping[str, WorkerView | str]:
        """Return each worker's view, or a text that says why it is not known."""
        found: dict[str, WorkerView | str] = dict.fromkeys(urls, LATE)
        threads = DaemonThreads(AT_ONCE, "looks")
        answers = SimpleQueue[tuple[str, WorkerView | str]]()
        until = time.monotonic() + ALL_S
        for url in found:
            threads.submit(lambda url=url: answers.put((url, self._view(url))))  # type: ignore[misc]
        try:
            for _ in range(len(found)):
                url, view = answers.get(timeout=max(until - time.monotonic(), 0.001))
                found[url] = view
        except Empty:
            pass  # a worker without an answer is late
        threads.close()
        return found

    def _view(self, url: str) -> WorkerView | str:
        try:
            told = _origin(url) == _origin(self._where)
            answer = self._pool.request(
                "GET",
                f"{url.rstrip('/')}{WORKER}",
                headers=[*self._headers, *(self._login if told else ())],
                extensions=_LIMITS,
            )
            if answer.status == 401:
                return self._not_let_in(url, told=told)
            if answer.status >= 500:
                return f"it answers with status {answer.status}"
            return wire.from_plain(WorkerView, json.loads(answer.content))
        except httpcore.TimeoutException:
            return LATE
        except httpcore.NetworkError as error:
            return f"it does not answer: {error or type(error).__name__}"
        except httpcore.ProtocolError:
            return f"what listens at {url} does not speak {urlsplit(url).scheme}"
        except wire.WireError:
            return TELLS_NOTHING
        except (httpcore.UnsupportedProtocol, TypeError, ValueError) as error:
            if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
                return TELLS_NOTHING
            return f"{url} is no address of a worker"

    def _not_let_in(self, url: str, *, told: bool) -> str:
        if told:
            return "it does not let this user in" if self._login else "it wants a user"
        return f"it wants a user; ask it itself: headgate status --url {url.rstrip('/')}"


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port. Raises ValueError: `url` cannot be parsed."""
    found = urlsplit(url)
    return found.scheme, found.hostname, found.port or _PORTS.get(found.scheme)
