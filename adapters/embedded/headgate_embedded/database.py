"""Connections to the file, transactions on it, and the wait for its single write lock.

Rules for code that writes: encode before `write()`, run no foreign code inside it, and keep it
short. All exceptions of SQLite are translated here, once.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw

from headgate.ports import TransportError
from headgate_embedded import schema
from headgate_embedded.lock_holder import LockHolders

LEASE_MS: Final = 5_000
"""How long one process may hold the write lock without a commit before it is killed.

It is half of the default session timeout. No member's heartbeat gets through meanwhile, and one
suspended process must not end the sessions of all others.
"""
_POLL_S: Final = 0.000_5
_POLL_S_MAX: Final = 0.002
_COUNTED_MS_MAX: Final = 100
_LOOK_MS: Final = 250
_IDLE_CONNECTIONS: Final = 8
_OPEN_WAIT_S: Final = 5.0


_turns: Final[dict[Path, threading.Lock]] = {}
"""Locks among the threads of this process, by file. The thread that has it polls for the write
lock, and the others wait for that thread. Otherwise a process with 50 tasks would poll 50 times."""
# A fork copies only one thread, and must not inherit a lock that another thread holds.
os.register_at_fork(after_in_child=_turns.clear)


def say_on_stderr(message: str) -> None:
    """Print a warning for the operator on stderr."""
    print(f"headgate: {message}", file=sys.stderr, flush=True)


class Database:
    """The file, for all threads of one process. A connection serves one thread at a time.

    Args:
        path: the file. It is created if it does not exist, unless `read_only`.
        still: the caller knows that no process writes the file. Then SQLite makes no files beside
            it.
        lease_ms: see `LEASE_MS`.
        warn: called with one line of text when a suspended process was killed.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        still: bool = False,
        lease_ms: int = LEASE_MS,
        warn: Callable[[str], None] = say_on_stderr,
    ) -> None:
        schema.check_library(apsw.sqlite_lib_version())
        if not read_only:
            schema.make_if_absent(path)
        schema.check_file(path)
        self.path = path
        self.read_only = read_only
        self._still = read_only and still
        self._lease_ms = lease_ms
        self._warn = warn
        self._mutex = threading.Lock()
        self._turn = _turns.setdefault(path.absolute(), threading.Lock())
        self._idle: list[apsw.Connection] = []
        self._all: list[apsw.Connection] = []
        self._closed = False
        self._unsynced: set[int] = set()
        self._holders = LockHolders(path)
        if not read_only:
            self._holders.register()
        with self.read():
            pass  # raises now if the file cannot be used

    @contextmanager
    def read(self) -> Iterator[apsw.Connection]:
        """Open a read transaction. All reads inside see the same snapshot of the log."""
        connection = self._take()
        try:
            try:
                # The select takes the snapshot, and may have to wait for a recovery after a crash.
                self._begin(connection, "begin; select 1 from changes limit 1")
                yield connection
            finally:
                _end(connection, "commit")
        except apsw.Error as error:
            raise self._translated(error) from error
        finally:
            self._give(connection)

    @contextmanager
    def write(self, *, synced: bool = True) -> Iterator[apsw.Connection]:
        """Open a write transaction, under the write lock. After an exception nothing of it is
        written.

        Args:
            synced: after the commit it survives a loss of power. Data that only matters while its
                processes live (heartbeats, calls) needs no sync.
        """
        if self.read_only:
            raise TransportError(f"{self.path} was opened for reading")
        connection = self._take()
        try:
            self._set_synced(connection, synced)
            with self._turn:
                try:
                    self._begin(connection, "begin immediate")
                    yield connection
                    connection.execute("commit")
                finally:
                    _end(connection, "rollback")
        except apsw.Error as error:
            raise self._translated(error) from error
        finally:
            self._give(connection)

    def fold(self) -> None:
        """Copy the write-ahead log into the file, as far as readers allow. A process that opens the
        file reads its header without the write-ahead log."""
        connection = self._take()
        try:
            with suppress(apsw.Error):
                connection.execute("pragma wal_checkpoint(passive)")
        finally:
            self._give(connection)

    def vacuum(self) -> None:
        """Rewrite the file without its free pages, atomically.

        Raises:
            TransportError: another connection uses the file, or the disk has too little room.
        """
        connection = self._take()
        try:
            connection.execute("vacuum")
            connection.execute("pragma wal_checkpoint(truncate)")
        except apsw.Error as error:
            raise self._translated(error) from error
        finally:
            self._give(connection)

    def watch(self) -> "Watch":
        return Watch(self)

    def close(self) -> None:
        """Close all connections. Calls under way in other threads fail with `TransportError`."""
        with self._mutex:
            self._closed = True
            connections, self._all, self._idle = self._all, [], []
        for connection in connections:
            try:
                connection.close()
            except apsw.Error:
                connection.interrupt()  # it is in use: its thread gets the error and closes it

    def _take(self) -> apsw.Connection:
        with self._mutex:
            if self._closed:
                raise TransportError(f"{self.path} was closed by this process")
            if self._idle:
                return self._idle.pop()
        connection = self._connect()
        with self._mutex:
            self._all.append(connection)
        return connection

    def _give(self, connection: apsw.Connection) -> None:
        with self._mutex:
            # One whose transaction could not be ended could begin no other.
            usable = not self._closed and not connection.in_transaction
            if usable and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
            if connection in self._all:
                self._all.remove(connection)
            self._unsynced.discard(id(connection))
        connection.close()

    def _connect(self) -> apsw.Connection:
        """Open a new connection. It is tried again while the file is busy: a process that closes
        the last connection locks the file to copy the write-ahead log into it."""
        deadline = time.monotonic() + _OPEN_WAIT_S
        while True:
            try:
                return self._open()
            except apsw.BusyError as error:
                if time.monotonic() >= deadline:
                    raise self._translated(error) from error
                time.sleep(0.002)
            except apsw.Error as error:
                raise self._translated(error) from error

    def _open(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY if self.read_only else apsw.SQLITE_OPEN_READWRITE
        name = str(self.path)
        if self._still:
            flags, name = flags | apsw.SQLITE_OPEN_URI, f"file:{quote(name)}?immutable=1"
        connection = apsw.Connection(name, flags=flags)
        try:
            # `_LockWait` waits for the lock: SQLite's own wait starves writers.
            connection.set_busy_timeout(0)
            connection.execute("pragma synchronous = full")
            connection.execute("pragma cache_size = -8000")
            if not self.read_only:
                connection.execute("pragma wal_autocheckpoint = 2000")
        except apsw.Error:
            connection.close()
            raise
        return connection

    def _set_synced(self, connection: apsw.Connection, synced: bool) -> None:
        if synced == (id(connection) not in self._unsynced):
            return
        connection.execute(f"pragma synchronous = {'full' if synced else 'normal'}")
        (self._unsynced.discard if synced else self._unsynced.add)(id(connection))

    def _begin(self, connection: apsw.Connection, statement: str) -> None:
        """Begin a transaction. Wait for the lock, and kill a holder that outlived its lease.

        Raises:
            apsw.Error: anything but "busy".
        """
        wait: _LockWait | None = None
        while True:
            try:
                for _ in connection.execute(statement):
                    pass
                return
            except apsw.BusyError:
                _end(connection, "rollback")
            if wait is None:
                wait = _LockWait(self._holders, self._lease_ms)
            if (stuck := wait.pause(connection)) is not None:
                self._warn(self._holders.end(stuck, wait.still_ms))

    def _translated(self, error: apsw.Error) -> TransportError:
        return TransportError(f"{self.path}: {type(error).__name__}: {error}")


class _LockWait:
    """One wait for the write lock. It pauses, and finds a holder that makes no progress.

    A commit of any process, or a change of the holder, is progress. Each pause counts only up to
    `_COUNTED_MS_MAX`. So a waiter that was itself suspended does not blame the holder for that
    time.
    """

    def __init__(self, holders: LockHolders, lease_ms: int) -> None:
        self.still_ms = 0.0
        """How long the same process has held the lock without any commit, as far as was seen."""
        self._holders = holders
        self._lease_ms = lease_ms
        self._pause_s = _POLL_S
        self._before = time.monotonic()
        self._looked_ms = 0.0
        self._seen: tuple[int | None, Any] = (None, None)

    def pause(self, connection: apsw.Connection) -> int | None:
        """Sleep for a moment. Return the pid of a holder that outlived its lease, or None."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.2, _POLL_S_MAX)
        now = time.monotonic()
        self._looked_ms += min((now - self._before) * 1000, _COUNTED_MS_MAX)
        self._before = now
        if self._looked_ms < min(_LOOK_MS, self._lease_ms / 4):
            return None
        progress = (self._holders.holder(), _version(connection))
        still = progress == self._seen and progress[0] is not None
        self.still_ms = self.still_ms + self._looked_ms if still else 0.0
        self._seen = progress
        self._looked_ms = 0.0
        if self.still_ms < self._lease_ms:
            return None
        self._seen = (None, None)
        return progress[0]


class Watch:
    """A cheap check whether the file may have changed. For one thread at a time.

    `changed` returns True once after each commit of any process. This process's own commits count
    too, since they are made on other connections.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: apsw.Connection | None = None
        self._seen: int | None = None

    def changed(self) -> bool:
        if self._connection is None:
            self._connection = self._database._take()
        try:
            found = _version(self._connection)
        except apsw.BusyError:
            return True
        except apsw.Error as error:
            raise TransportError(f"{self._database.path}: {error}") from error
        if found == self._seen:
            return False
        self._seen = found
        return True

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Wrap the read that follows a True of `changed`. If it fails, `changed` returns True once
        more."""
        try:
            yield
        except BaseException:
            self._seen = None
            raise

    def wait(self, timeout_ms: int, clock: Callable[[], float] = time.monotonic) -> bool:
        """Wait until the file changes. Return False if `timeout_ms` passed first."""
        end = clock() + timeout_ms / 1000
        while not self.changed():
            left = end - clock()
            if left <= 0:
                return False
            time.sleep(min(0.001, left))
        return True

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._database._give(connection)


def _version(connection: apsw.Connection) -> Any:
    return connection.pragma("data_version")


def _end(connection: apsw.Connection, statement: str) -> None:
    if connection.in_transaction:
        connection.execute(statement)
