"""A worker's reader and writers of its logs. What the herder wrote and read comes back as commands.

`InlineLogs` writes on the loop's thread, for a log that answers at once. `ThreadedLogs` is for
brokers, which may keep a writer waiting for long. Its loop reads only what has arrived already.
While writes hang, it still serves the herder, its heartbeats and its tasks.

Order is kept among claims and appends to the config topic: a write must not slip behind the claim
that follows it. It is also kept among the values of one key of the status topic, and among reads.
There is no order between config topic and status topic, nor between reads and writes. No decision
relies on one: a read-back waits for the answer to its append.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import orjson

from headgate.herder.messages import (
    Command,
    ConfigEndRead,
    ConfigRead,
    ReadConfigToEnd,
    StatusesWritten,
    StatusRead,
    WriteStatus,
)
from headgate.host.ports import ConfigRecords
from headgate.host.work import Work
from headgate.ports import ConfigLog, FencedError, KeyedLog, TransportError
from headgate.topics.config_events import RecordRejected
from headgate.topics.config_records import decode_all, java_text
from headgate.topics.config_reducer import REPLAY_BATCH
from headgate.topics.status import StatusRejected, decode_status
from headgate_runtime.worker.rejected_log import RejectedLog

log = logging.getLogger(__name__)

BATCH: Final = 5_000
RETRY_S_MIN: Final = 0.25
RETRY_S_MAX: Final = 5.0
CLOSE_S: Final = 3.0
"""How long a worker that ends waits until its last statuses are written."""

Statuses: TypeAlias = Sequence[tuple[bytes, bytes | None]]


class LogPorts(Protocol):
    config_log: ConfigLog
    status_log: KeyedLog


class Logs(Protocol):
    """Interface for the loop's thread. `claim` and `append` are called on whichever thread `run`
    chooses."""

    def run(self, work: Work) -> Sequence[Command]:
        """Perform work on the config topic. Return the commands that are known at once; later ones
        are posted."""
        ...

    def claim(self, generation: int) -> None: ...

    def append(self, records: ConfigRecords, *, privileged: bool) -> int: ...

    def read_to_end(self, token: int, *, statuses: bool = False) -> Sequence[Command]: ...

    def write_statuses(self, statuses: Sequence[WriteStatus]) -> None:
        """Write the statuses of one decision, in order. They wait while the log is out of reach."""
        ...

    def await_statuses(self, token: int) -> Sequence[Command]:
        """Return `StatusesWritten` once no status waits. If that is later, it is posted or yielded
        by `look`."""
        ...

    def write_waiting(self) -> None:
        """Try to write the waiting statuses, unless a thread does that."""
        ...

    def look(self) -> Iterator[Command]:
        """Yield what others wrote since the last look, at most one batch, and the ends that were
        reached.

        Each command must be handled before the next is taken. Taking the next may raise
        `TransportError`; what was read before is not read again.
        """
        ...

    def has_read(self, config_end: int, status_end: int) -> bool:
        """Return whether `look` has yielded everything before these positions."""
        ...

    def close(self) -> None: ...


class _Reader:
    """This worker's positions in both logs."""

    def __init__(self, ports: LogPorts, topics: Mapping[str, str]) -> None:
        self._ports = ports
        self._config_position = 0
        self._status_position = 0
        self._rejected = {
            what: RejectedLog(what, topics.get(what, "")) for what in ("config", "status")
        }

    def config(self) -> Iterator[Command]:
        """Yield the events of the records that were not yielded yet, at most `BATCH`.

        The position is never beyond what was yielded: while a command is handled, the herder may
        ask for everything up to the end.
        """
        for _ in range(BATCH // REPLAY_BATCH):
            at = self._config_position
            records, self._config_position = self._ports.config_log.read(at, REPLAY_BATCH)
            if not records:
                return
            events = decode_all(((r.offset, r.key, r.value) for r in records), orjson.loads)
            for event in events:
                if isinstance(event, RecordRejected):
                    self._rejected["config"].report(event)
            yield ConfigRead(tuple(events))

    def statuses(self) -> Sequence[Command]:
        records, self._status_position = self._ports.status_log.read(self._status_position)
        if not records:
            return ()
        events = [decode_status(r.key, r.value, orjson.loads, r.found_at) for r in records]
        for event in events:
            if isinstance(event, StatusRejected):
                self._rejected["status"].report(event)
        keys = [java_text(r.key or b"") for r in records]
        return [StatusRead(tuple(zip(keys, events, strict=True)))]

    def has_read(self, config_end: int, status_end: int) -> bool:
        return self._config_position >= config_end and self._status_position >= status_end

    def to_end(self, token: int, end: int, status_end: int) -> Sequence[Command]:
        """Return everything before position `end`, and statuses before `status_end`, followed by
        the answer to `ReadConfigToEnd`."""
        known: list[Command] = []
        try:
            while (position := self._config_position) < end:
                known.extend(self.config())
                if self._config_position == position:
                    raise TransportError(
                        f"the config log ends at {end}, nothing is read at {position}"
                    )
            while (position := self._status_position) < status_end:
                known.extend(self.statuses())
                if self._status_position == position:
                    raise TransportError(
                        f"the status log ends at {status_end}, nothing is read at {position}"
                    )
        except TransportError as error:
            return [*known, ConfigEndRead(token, str(error))]
        return [*known, ConfigEndRead(token)]


class _Writer:
    """A worker's writer to the config topic. Failures are logged."""

    def __init__(self, ports: LogPorts) -> None:
        self._ports = ports

    def claim(self, generation: int) -> None:
        try:
            self._ports.config_log.claim(generation)
        except (FencedError, TransportError) as error:
            log.warning("this worker leads, and tries again: %s", error)
            raise

    def append(self, records: ConfigRecords, *, privileged: bool) -> int:
        try:
            return self._ports.config_log.append(records, privileged=privileged)
        except (FencedError, TransportError) as error:
            log.warning("%s", error)
            raise


class InlineLogs(_Writer):
    def __init__(self, ports: LogPorts, topics: Mapping[str, str]) -> None:
        """
        Args:
            topics: names of the topics under ``config`` and ``status``, if they have names.
        """
        super().__init__(ports)
        self._reader = _Reader(ports, topics)
        self._waiting: list[tuple[bytes, bytes | None]] = []
        self._awaited: list[int] = []
        """Tokens to answer once no status waits."""

    def run(self, work: Work) -> Sequence[Command]:
        return work.perform()

    def read_to_end(self, token: int, *, statuses: bool = False) -> Sequence[Command]:
        try:
            end = self._ports.config_log.end()
            status_end = self._ports.status_log.end() if statuses else 0
        except TransportError as error:
            return [ConfigEndRead(token, str(error))]
        return self._reader.to_end(token, end, status_end)

    def write_statuses(self, statuses: Sequence[WriteStatus]) -> None:
        self._waiting.extend(_keyed(statuses))
        self.write_waiting()

    def await_statuses(self, token: int) -> Sequence[Command]:
        self._awaited.append(token)
        return list(self._written())

    def _written(self) -> Iterator[Command]:
        while self._awaited and not self._waiting:
            yield StatusesWritten(self._awaited.pop(0))

    def write_waiting(self) -> None:
        if not self._waiting:
            return
        try:
            self._ports.status_log.append(self._waiting)
        except TransportError as error:
            log.warning("%d statuses wait: %s", len(self._waiting), error)
            return
        self._waiting = []

    def look(self) -> Iterator[Command]:
        yield from self._reader.config()
        yield from self._reader.statuses()
        yield from self._written()

    def has_read(self, config_end: int, status_end: int) -> bool:
        return self._reader.has_read(config_end, status_end)

    def close(self) -> None:
        """Do nothing: no write is under way."""


class ThreadedLogs(_Writer):
    """Logs on three threads. One writes the config topic, one the status topic, one asks for end
    offsets."""

    def __init__(
        self,
        ports: LogPorts,
        topics: Mapping[str, str],
        post: Callable[[Command], None],
        wake: Callable[[], None],
    ) -> None:
        """
        Args:
            topics: as in `InlineLogs`.
            post: takes a command for the herder, from any thread.
            wake: makes the loop look again soon, from any thread.
        """
        super().__init__(ports)
        self._post = post
        self._wake = wake
        self._reader = _Reader(ports, topics)
        self._writes: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._ends: queue.SimpleQueue[tuple[int, bool] | None] = queue.SimpleQueue()
        """Tokens that wait for the end of the config log, each with whether it waits for that of
        the status log, too."""
        self._reached: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()
        """(token, end, end of statuses): everything before these ends can be read without
        waiting."""
        self._statuses = _Latest()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (
                ("config-writer", self._write_configs),
                ("status-writer", self._write_statuses),
                ("config-end", self._find_ends),
            )
        ]
        for thread in self._threads:
            thread.start()

    def run(self, work: Work) -> Sequence[Command]:
        if isinstance(work.effects[0], ReadConfigToEnd):
            return work.perform()
        self._writes.put(work)
        return ()

    def read_to_end(self, token: int, *, statuses: bool = False) -> Sequence[Command]:
        self._ends.put((token, statuses))
        return ()

    def write_statuses(self, statuses: Sequence[WriteStatus]) -> None:
        self._statuses.put(_keyed(statuses))

    def await_statuses(self, token: int) -> Sequence[Command]:
        self._statuses.mark(token)
        return ()

    def write_waiting(self) -> None:
        """Do nothing: a thread writes them."""

    def look(self) -> Iterator[Command]:
        yield from self._reader.config()
        yield from self._reader.statuses()
        while not self._reached.empty():
            yield from self._reader.to_end(*self._reached.get())

    def has_read(self, config_end: int, status_end: int) -> bool:
        return self._reader.has_read(config_end, status_end)

    def close(self) -> None:
        """Wait up to `CLOSE_S` for each thread. What is not written by then is never written."""
        self._closing.set()
        self._writes.put(None)
        self._ends.put(None)
        self._statuses.close()
        for thread in self._threads:
            thread.join(CLOSE_S)

    def _write_configs(self) -> None:
        while (work := self._writes.get()) is not None:
            try:
                commands = work.perform()
            except Exception as error:  # a bug, which must not go unanswered
                log.exception("%s", type(work.effects[0]).__name__)
                commands = work.failed(f"{type(error).__name__}: {error}")
            for command in commands:
                self._post(command)

    def _find_ends(self) -> None:
        """Answer all waiting requests with one look at the end. An end that was asked for after a
        request came is late enough for it."""
        while (first := self._ends.get()) is not None:
            asked = [first]
            while not self._ends.empty():
                if (another := self._ends.get()) is None:
                    return
                asked.append(another)
            try:
                end = self._ports.config_log.end()
            except Exception as error:
                self._not_reached(asked, error, "config")
                continue
            for token, statuses in asked:
                if not statuses:
                    self._reached.put((token, end, 0))
            self._wake()
            asked = [each for each in asked if each[1]]
            if not asked:
                continue
            try:
                status_end = self._ports.status_log.end()
            except Exception as error:
                self._not_reached(asked, error, "status")
                continue
            for token, _ in asked:
                self._reached.put((token, end, status_end))
            self._wake()

    def _not_reached(self, asked: Sequence[tuple[int, bool]], error: Exception, of: str) -> None:
        if not isinstance(error, TransportError):
            log.exception("the end of the %s topic", of)
        for token, _ in asked:
            self._post(ConfigEndRead(token, str(error)))

    def _write_statuses(self) -> None:
        """Write statuses, and try again until it succeeds: the herder does not send a status
        twice."""
        pause_s = RETRY_S_MIN
        while (batch := self._statuses.take()) is not None:
            try:
                if batch:
                    self._ports.status_log.append(batch)
            except TransportError as error:
                log.warning("%d statuses wait: %s", len(batch), error)
                self._statuses.put_back(batch)
                if self._closing.wait(pause_s):
                    return
                pause_s = min(pause_s * 2, RETRY_S_MAX)
                continue
            except Exception:  # a bug: tried again it would keep all later ones waiting, and
                # a thread that ends here would lose them all
                log.exception("%d statuses are lost", len(batch))
            for token in self._statuses.taken:
                self._post(StatusesWritten(token))
            pause_s = RETRY_S_MIN


def _keyed(statuses: Sequence[WriteStatus]) -> list[tuple[bytes, bytes | None]]:
    return [(status.key.encode(), status.value) for status in statuses]


class _Latest:
    """Waiting statuses: the latest of each key, in the order of their changes. However long a
    broker is away, there are never more than connectors and tasks."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes | None] = {}
        self._marks: list[int] = []
        """Tokens to answer once everything that waits is written."""
        self.taken: list[int] = []
        """Tokens to answer once the statuses taken last are written. Used by the thread that
        takes."""
        self._changed = threading.Condition()
        self._closed = False

    def put(self, statuses: Statuses) -> None:
        with self._changed:
            for key, value in statuses:
                self._values.pop(key, None)
                self._values[key] = value
            self._changed.notify()

    def mark(self, token: int) -> None:
        with self._changed:
            self._marks.append(token)
            self._changed.notify()

    def put_back(self, statuses: Statuses) -> None:
        """Put back statuses that could not be written. A status that came since is newer and
        wins."""
        with self._changed:
            self._values = dict(statuses) | self._values
            self._marks = self.taken + self._marks

    def take(self) -> Statuses | None:
        """Return all statuses as soon as there are any, or a token waits for them. Return None once
        this is closed and nothing is left."""
        with self._changed:
            while not (self._values or self._marks or self._closed):
                self._changed.wait()
            if not self._values and not self._marks:
                return None
            values, self._values = self._values, {}
            self.taken, self._marks = self._marks, []
            return list(values.items())

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
