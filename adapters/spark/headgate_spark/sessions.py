"""Sessions with a Spark Connect server that may be gone for a while and come back."""

import contextlib
import hashlib
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

START_TIMEOUT: Final = "spark.start.timeout.s"
"""Worker setting for tasks: how many seconds a Spark that the worker has started may take to
listen."""
OUTAGE: Final = "spark.outage.file"
"""Worker setting for tasks: the file that says why their driver was ended, if it was."""
OUTAGE_FILE: Final = "outage"
_LOOK_S = 0.05
_CAUSED_BY: Final = "Caused by: "
_RPC: Final = re.compile(r'terminated with:\s+status = StatusCode\.(\w+)\s+details = "(.*)"')
_BROKEN: Final = "Application error processing RPC"
"""Message of gRPC if a server's code failed where Spark does not turn that into an error. A driver
whose application is over answers so until it is ended: it no longer has a `SparkEnv`."""
_OVER: Final = (
    *("UNAVAILABLE", "SESSION_", "INVALID_HANDLE", "CANCELLED", "Socket closed"),
    *("SparkContext was shut down", "stopped SparkContext", _BROKEN),
)


class NotListeningError(Exception):
    """Spark did not listen in time, or the caller no longer waits for it."""


class Sessions:
    """Keeps one session. After `drop`, a new one is made. Thread-safe.

    Args:
        remote: ``sc://host:port``.
        patience_s: how long a new session waits until the server listens. 0 for a server that is up
            already. A server that starts beside its worker needs some seconds.
        shared: use one session together with all processes that ask for it. Spark starts a Python
            daemon for each session, which costs seconds of CPU, so a shared one saves that. Only
            for a server of our own, whose sessions do not expire.
        outage: file that says why the driver was ended, if it was. Empty: there is none.

    Calls are sent once. By default Spark's client tries again for minutes. It re-sends a plan whose
    operation the server does not know, for example after a restart. That would start a task body a
    second time.
    """

    def __init__(
        self, remote: str, patience_s: float = 0.0, *, shared: bool = False, outage: str = ""
    ) -> None:
        self.remote = remote
        self._outage = outage
        self._shared = shared
        self._patience_s = patience_s
        self._mutex = threading.Lock()
        self._session: Any = None

    @classmethod
    def of_task(
        cls, remote: str, worker_settings: Mapping[str, str], *, shares: bool = False
    ) -> "Sessions":
        """Return sessions as a worker's settings for its tasks describe them.

        Args:
            shares: whether the task uses the shared session, if the worker has started this Spark.
        """
        patience_s = float(worker_settings.get(START_TIMEOUT, "0"))
        outage = worker_settings.get(OUTAGE, "")
        return cls(remote, patience_s, shared=shares and patience_s > 0, outage=outage)

    def get(self, given_up: Callable[[], bool] = lambda: False) -> Any:
        """Return the session. Raises as Spark's client does if the server is out of reach.

        Args:
            given_up: returns whether the caller no longer waits. It is called while the server does
                not listen.

        Raises:
            NotListeningError: the server does not listen, and `patience_s` is over.
        """
        if self._patience_s and self.current() is None:
            wait_listening(self.remote, self._patience_s, given_up)
        from pyspark.sql import SparkSession

        with self._mutex:
            if self._session is None:
                remote = shared_remote(self.remote) if self._shared else self.remote
                session = SparkSession.builder.remote(remote).create()
                session.client.set_retry_policies([])
                session.client.disable_reattachable_execute()
                self._session = session
            return self._session

    def current(self) -> Any:
        """Return the session if there is one. None is made."""
        with self._mutex:
            return self._session

    def drop(self, session: Any) -> None:
        """Forget `session` after it failed, unless another has already replaced it."""
        with self._mutex:
            if self._session is session:
                self._session = None

    def why(self, error: BaseException) -> str:
        """Return why a call failed: the known reason for the driver's end, or else what Spark
        says."""
        known = ""
        if self._outage:
            with contextlib.suppress(OSError):
                known = Path(self._outage).read_text("utf-8", "replace").strip()
        return known or first_line(error)

    def close(self) -> None:
        """End the session, with all that still runs in it. A shared session goes on for others."""
        with self._mutex:
            session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(Exception):  # the server may be gone, and then nothing is left
                session.client.close() if self._shared else session.stop()


def shared_remote(remote: str) -> str:
    """Return the address of the session that processes share if they ask for it. `remote` has
    parameters."""
    # A UUID of a version that Spark's client accepts, and the same in each process.
    session = uuid.UUID(hex=hashlib.sha256(remote.encode()).hexdigest()[:32], version=4)
    return f"{remote};user_id=headgate;session_id={session}"


def wait_listening(
    remote: str, timeout_s: float, given_up: Callable[[], bool] = lambda: False
) -> None:
    """Return as soon as the server at `remote` (``sc://host:port``) listens.

    Raises:
        NotListeningError: it does not within `timeout_s`, or `given_up` returned True.
    """
    address = urlsplit(remote)
    host, port = address.hostname or "localhost", address.port or 15002
    until = time.monotonic() + timeout_s
    while not listens(host, port):
        if given_up():
            raise NotListeningError("Spark was still starting when the task was stopped")
        if time.monotonic() > until:
            raise NotListeningError(
                f"Spark at {host}:{port} does not listen after {timeout_s:g} s; its log says why"
            )
        time.sleep(_LOOK_S)


def listens(host: str, port: int) -> bool:
    """Return whether a server accepts connections there."""
    try:
        with socket.create_connection((host, port), 1.0):
            return True
    except OSError:
        return False


def refuses(host: str, port: int) -> bool:
    """Return whether the machine refuses connections there. Silence does not count."""
    try:
        with socket.create_connection((host, port), 1.0):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def shown_remote(remote: str) -> str:
    """Return the address for messages, without the values of a token and other parameters. They
    would open the server to every reader."""
    return re.sub(r"=[^;]*", "=...", remote)


def session_is_over(error: BaseException) -> bool:
    """Return whether `error` means that the server went away, has no application any more, or does
    not know the session."""
    text = f"{type(error).__name__} {error}"
    return any(mark in text for mark in _OVER)


def executors_lost(error: BaseException) -> bool:
    """Return whether `error` means that executors died so often that Spark gave up their work."""
    return "ExecutorLostFailure" in str(error)


def first_line(error: BaseException) -> str:
    """Return Spark's message in one line. The rest is a Java trace, or internals of gRPC."""
    if found := _RPC.search(str(error)):
        return f"{type(error).__name__}: {found[1]}: {found[2]}"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def with_cause(error: BaseException) -> str:
    """Return the first line, and the root cause. Spark says first that a file cannot be read, and
    last which value cannot be parsed."""
    trace = str(getattr(error, "_stacktrace", None) or "")
    causes = [line for line in trace.splitlines() if line.startswith(_CAUSED_BY)]
    if not causes:
        return first_line(error)
    _, _, cause = causes[-1].removeprefix(_CAUSED_BY).partition(": ")
    return f"{first_line(error)}; cause: {cause.strip() or causes[-1]}"
