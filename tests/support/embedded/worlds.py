"""A cluster's log for one test, in each of its implementations, behind one interface.

To put a new transport under the contract suite, add a class here and a line in `WORLDS`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from support.rest.serving import serving_meanwhile

from headgate.membership.consumer import ConsumerSettings
from headgate.ports import Clock, ConfigLog, Fencer, Group, KeyedLog, LogRecord, Peers, RecordLog
from headgate.simulation.memory import MemoryCluster
from headgate.simulation.memory_transport import MemoryTransport
from headgate_embedded import open_transport, transport_settings

SESSION_MS = 5_000
"""Session timeout of consumers in these tests."""


class Transport(Protocol):
    config_log: ConfigLog
    offset_log: KeyedLog
    status_log: KeyedLog
    group: Group
    record_log: RecordLog
    fencer: Fencer
    peers: Peers
    clock: Clock

    def close(self) -> None: ...


class World(Protocol):
    knows_memberships: bool
    """Whether the log that is written also coordinates the group. Such a log refuses a claim, or
    the initialisation of a producer, for a membership that has ended."""

    session_ms: int
    """Session timeout of the world's consumers, in ms."""

    def connect(self, url: str = "") -> Transport:
        """Open a transport, as another worker would."""
        ...

    def name(self, text: str) -> str:
        """Return `text` as the name of a topic, group or transactional id that no other world
        has."""
        ...

    def now_ms(self) -> int: ...

    def advance(self, ms: int) -> None:
        """Let time pass."""
        ...

    def await_answers(self) -> None:
        """Wait as long as a request to the coordinator and its answer take."""
        ...

    def serving(self, serve: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `serve` again and again inside the block, while a caller waits for an answer."""
        ...

    def close(self) -> None: ...


def read_on(log: ConfigLog | KeyedLog, position: int = 0) -> tuple[list[LogRecord], int]:
    """Return all records after `position`, and the position at the end."""
    end = log.end()
    found: list[LogRecord] = []
    while position < end:
        before = position
        records, position = log.read(position)
        assert position > before, f"the log ends at {end}, nothing is read at {position}"
        found += records
    return found, position


class MemoryWorld:
    knows_memberships = True
    session_ms = SESSION_MS

    def __init__(self, _folder: Path) -> None:
        self._now_ms = 1_000
        self._serve: Callable[[], None] = lambda: None
        self.cluster = MemoryCluster(
            self.now_ms,
            while_waiting=self._wait,
            consumer=ConsumerSettings(session_timeout_ms=SESSION_MS),
        )

    def name(self, text: str) -> str:
        return text

    def connect(self, url: str = "") -> Transport:
        return MemoryTransport(self.cluster, url)

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def await_answers(self) -> None:
        """Return at once: the coordinator has answered already."""

    @contextmanager
    def serving(self, serve: Callable[[], None]) -> Iterator[None]:
        self._serve = serve
        yield
        self._serve = lambda: None

    def close(self) -> None:
        pass

    def _wait(self) -> None:
        self._now_ms += 1
        self._serve()


class ShiftedClock:
    """The real clock, plus the time that the test has added."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self.shift_ms


class EmbeddedWorld:
    knows_memberships = True
    session_ms = SESSION_MS

    def __init__(self, folder: Path) -> None:
        self._clock = ShiftedClock()
        self._opened: list[Transport] = []
        self.settings: Mapping[str, str] = transport_settings(folder / "data") | {
            "consumer.session.timeout.ms": str(SESSION_MS)
        }

    def name(self, text: str) -> str:
        return text

    def connect(self, url: str = "") -> Transport:
        opened = open_transport(self.settings, url=url, clock=self._clock)
        self._opened.append(opened)
        return opened

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def advance(self, ms: int) -> None:
        self._clock.shift_ms += ms

    def await_answers(self) -> None:
        """Return at once: the coordinator has answered already."""

    def serving(self, serve: Callable[[], None]) -> AbstractContextManager[None]:
        return serving_meanwhile(serve)

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


WORLDS: dict[str, Callable[[Path], World]] = {"memory": MemoryWorld, "embedded": EmbeddedWorld}
