"""Sessions with a Spark Connect server that may be gone for a while and come back."""

import contextlib
import re
import threading
from typing import Any


class Sessions:
    """Keeps one session; a new one is made after `drop`. Thread-safe.

    Calls are sent once. Spark's client by default tries again for minutes, and re-sends a plan
    whose operation the server does not know, such as after a restart: that would start a task
    body a second time.
    """

    def __init__(self, remote: str) -> None:
        self.remote = remote
        self._mutex = threading.Lock()
        self._session: Any = None

    def get(self) -> Any:
        """The session. Raises what Spark's client raises when the server is out of reach."""
        from pyspark.sql import SparkSession

        with self._mutex:
            if self._session is None:
                session = SparkSession.builder.remote(self.remote).create()
                session.client.set_retry_policies([])
                session.client.disable_reattachable_execute()
                self._session = session
            return self._session

    def current(self) -> Any:
        """The session if there is one; makes none."""
        with self._mutex:
            return self._session

    def drop(self, session: Any) -> None:
        """Forget `session` after it failed, unless another has taken its place already."""
        with self._mutex:
            if self._session is session:
                self._session = None

    def close(self) -> None:
        """End the session, and with it what still runs in it."""
        with self._mutex:
            session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(Exception):  # the server may be gone; nothing is left then
                session.stop()


def shown_remote(remote: str) -> str:
    """The address as messages may have it: without the values of a token and other parameters,
    which open the server to whoever reads them."""
    return re.sub(r"=[^;]*", "=...", remote)


def session_is_over(error: BaseException) -> bool:
    """Whether `error` says that the server went away or does not know the session any more."""
    text = f"{type(error).__name__} {error}"
    marks = ("UNAVAILABLE", "SESSION_", "INVALID_HANDLE", "CANCELLED", "Socket closed")
    return any(mark in text for mark in marks)


def first_line(error: BaseException) -> str:
    """What Spark says in one line; the rest is a Java trace."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
