"""A worker's loop looks at what others wrote. An idle loop costs next to nothing, and
still misses nothing."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.herder.herder import Herder
from headgate.herder.messages import AlterConnectorOffsets, Command, Shutdown, StatusRead, Tick
from headgate.membership.messages import JoinGroup
from headgate.ports import RefusedError, TransportError
from headgate.task.messages import TaskKind
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_embedded.database import Database
from headgate_runtime.worker.loop import QUICK_POLL_MS, TOLD_POLL_MS, Worker, WorkerConfig


class ManualClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def other(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    """Another process's way to the same log."""
    transport = open_transport(transport_settings(tmp_path))
    yield transport
    transport.close()


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker that has read everything. Its herder is not served, but its commands are kept."""
    config = WorkerConfig(
        "w", "w", transport_settings(tmp_path), {"headgate.task.runner": "thread"}
    )
    made = Worker(config)
    told: list[Command] = []
    monkeypatch.setattr(made, "_handle", told.append)
    monkeypatch.setattr(made, "told", told, raising=False)
    look(made, 3)
    yield made
    made._performer.close()
    made.transport.close()


def look(worker: Worker, times: int = 1) -> list[str]:
    """Statuses that it was told in so many looks."""
    told: list[Command] = worker.told  # type: ignore[attr-defined]
    told.clear()
    for _ in range(times):
        worker._read_world()
    reads = [command for command in told if isinstance(command, StatusRead)]
    return [key for command in reads for key, _ in command.records]


def test_an_idle_look_begins_no_transaction(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a transaction")

    monkeypatch.setattr(Database, "read", refuse)
    monkeypatch.setattr(Database, "write", refuse)
    for log in (worker.transport.config_log, worker.transport.status_log, worker.transport.peers):
        monkeypatch.setattr(log, "_watch", None)  # nor does it ask each of them
    assert look(worker, 100) == []


@pytest.mark.parametrize("full", [False, True])
def test_who_wakes_it_is_not_kept_waiting_and_it_looks(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    """The thread of the group's connections wakes it, and heartbeats go over that."""
    looks: list[int] = []
    monkeypatch.setattr(worker, "_inbox", queue.Queue(1))
    monkeypatch.setattr(worker, "_read_group", lambda: looks.append(1))
    worker._read_world()
    assert looks == []
    if full:
        worker.post(Tick())
    waking = threading.Thread(target=worker.wake, daemon=True)
    waking.start()
    waking.join(5)
    assert not waking.is_alive()
    assert isinstance(worker._next_command(), Tick) is full
    worker._read_world()
    worker._read_world()
    assert looks == [1]


def test_a_wake_outlasts_a_log_that_is_out_of_reach(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(worker, "_read_group", lambda: looks.append(1))
    away = [TransportError("away")]

    def changed() -> bool:
        if away:
            raise away.pop()
        return False

    monkeypatch.setattr(worker.transport, "changed", changed)
    worker.wake()
    worker._read_world()
    assert looks == []
    worker._read_world()
    assert looks == [1]


class Waits:
    """An inbox into which nothing comes, and how long it was waited for, in ms."""

    def __init__(self) -> None:
        self.ms: list[int] = []

    def get(self, timeout: float) -> None:
        self.ms.append(round(timeout * 1000))
        raise queue.Empty


def test_a_worker_that_is_told_of_what_comes_looks_seldom_unless_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[Callable[[], None]] = []

    def subscribe(_transport: EmbeddedTransport, told: Callable[[], None]) -> bool:
        woken.append(told)
        return True

    monkeypatch.setattr(EmbeddedTransport, "subscribe", subscribe)
    made = Worker(
        WorkerConfig("w", "w", transport_settings(tmp_path), {"headgate.task.runner": "thread"})
    )
    told: list[Command] = []
    waits = Waits()
    monkeypatch.setattr(made, "_handle", told.append)
    monkeypatch.setattr(made, "_inbox", waits)
    try:
        assert woken == [made.wake]
        for _ in range(3):
            made._read_world()
        made._next_command()
        made._unfinished = True
        made._next_command()
        monkeypatch.setattr(made.transport, "changed", out_of_reach)
        made._read_world()
        made._next_command()
        assert waits.ms == [TOLD_POLL_MS, QUICK_POLL_MS, TOLD_POLL_MS]
        made._coordinator_lost_since, made.gave_up = None, "refused for good"
        made._next_command()
        assert waits.ms[3:] == [TOLD_POLL_MS]
    finally:
        made._performer.close()
        made.transport.close()


def out_of_reach() -> bool:
    raise TransportError("out of reach")


def test_what_another_writes_is_seen_at_the_next_look(
    worker: Worker, other: EmbeddedTransport
) -> None:
    for n in range(3):
        other.status_log.append([(b"status-connector-%d" % n, b"{}")])
        assert look(worker) == [f"status-connector-{n}"]
        assert look(worker, 5) == []


def test_a_look_that_failed_is_made_again(
    worker: Worker, other: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change was noticed by then, and nothing else may change for long."""
    other.status_log.append([(b"status-connector-c", b"{}")])
    with monkeypatch.context() as broken:

        def fail(_position: int) -> None:
            raise TransportError("out of reach")

        broken.setattr(worker.transport.status_log, "read", fail)
        assert look(worker, 2) == []
    assert look(worker) == ["status-connector-c"]


def test_a_worker_that_is_refused_gives_up_and_says_why(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Out of reach it tries again; refused it would try for ever."""
    errors = [TransportError("out of reach"), *[RefusedError("no right")] * 3]

    def fail() -> None:
        raise errors.pop(0)

    monkeypatch.setattr(worker.transport.group, "receive", fail)
    worker._unfinished = True
    look(worker)
    assert (worker.gave_up, worker._stop_asked) == ("", False)
    look(worker, 3)
    assert (worker.gave_up, worker._stop_asked, errors) == ("no right", True, [])
    assert caplog.text.count("gives up: no right") == 1


EFFECT = AlterConnectorOffsets(0, "c", {}, TaskKind.SOURCE, None, None, "", 0)


@pytest.mark.parametrize(
    ("leads", "commit_offset", "ours"),
    [(True, 2, True), (False, 2, False), (True, 1, False), (True, None, False)],
)
def test_whether_a_connector_is_still_ours_is_known_when_the_log_was_read(
    worker: Worker,
    other: EmbeddedTransport,
    monkeypatch: pytest.MonkeyPatch,
    leads: bool,
    commit_offset: int | None,
    ours: bool,
) -> None:
    other.config_log.append([("connector-c", b"{}")], privileged=False)
    entry = SimpleNamespace(commit_offset=2)
    state = SimpleNamespace(entry={"c": entry}.get)
    herder = SimpleNamespace(
        leads=True, state=state, done=False, next_deadline_ms=None, watched=False
    )
    monkeypatch.setattr(worker, "herder", herder)

    def handle(command: Command) -> None:
        if isinstance(command, Tick):  # whose time is over finds out now
            herder.leads = leads

    monkeypatch.setattr(worker, "_handle", handle)
    answers: list[bool] = []
    effect = replace(EFFECT, commit_offset=commit_offset)
    thread = threading.Thread(target=lambda: answers.append(worker.still_ours(effect)))
    thread.start()
    while not worker._awaiting:
        time.sleep(0.001)
    assert answers == []
    worker._next_command()
    worker._read_world()
    thread.join(10)
    assert answers == [ours]


def test_who_waits_for_a_worker_that_has_ended_is_told(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "herder", SimpleNamespace(done=True))
    with pytest.raises(TransportError, match="did not read"):
        worker.still_ours(EFFECT)


def test_more_than_one_look_takes_is_taken_by_the_next(
    worker: Worker, other: EmbeddedTransport
) -> None:
    keys = [f"status-connector-{n}" for n in range(7_000)]
    other.status_log.append([(key.encode(), b"{}") for key in keys])
    assert len(look(worker)) == 5_000
    assert len(look(worker)) == 2_000


def test_a_pile_of_commands_does_not_keep_it_from_the_group(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may cost a synced write: a thousand of them would outlast the session, unheard."""
    clock = ManualClock()
    monkeypatch.setattr(worker, "_clock", clock)
    worker._served_ms = clock.now_ms()
    handled: list[Command] = []

    def slowly(command: Command) -> None:
        handled.append(command)
        clock.ms += 20

    monkeypatch.setattr(worker, "_handle", slowly)
    for _ in range(100):
        worker.post(Tick())
    worker._drain()
    assert 1 <= len(handled) <= 10


def test_status_keys_are_read_as_java_reads_them(worker: Worker, other: EmbeddedTransport) -> None:
    """Half a surrogate pair is one U+FFFD to Java, three to Python."""
    other.status_log.append([(b"status-connector-\xed\xa0\x80", b"{}")])
    assert look(worker) == ["status-connector-\ufffd"]


def test_a_session_that_ends_in_silence_is_a_change(tmp_path: Path) -> None:
    """No process writes when a member is gone, so the worker that looks must end its session."""
    clock = ManualClock()
    transport = open_transport(transport_settings(tmp_path), clock=clock)
    transport.group.send(JoinGroup("g", "", "c", "connect", (("p", b""),), 60_000, 10_000))
    while transport.changed():
        transport.group.receive()
    clock.ms += 60_000
    assert transport.changed()
    while transport.changed():
        transport.group.receive()
    transport.close()


def test_the_herder_is_told_the_time_when_it_asked_to_be_and_not_before(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Command | None] = []
    clock = worker._clock = ManualClock()
    due_ms = clock.ms + 60_000
    monkeypatch.setattr(Herder, "next_deadline_ms", due_ms)
    for clock.ms in (due_ms - 1_000, due_ms - 1, due_ms, due_ms + 1_000):
        given.append(worker._next_command())
    assert given == [None, Tick(), Tick(), Tick()]


def test_what_was_posted_comes_before_the_time(worker: Worker) -> None:
    worker.post(Shutdown())
    assert worker._next_command() == Shutdown()
