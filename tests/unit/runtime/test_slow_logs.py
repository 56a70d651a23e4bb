"""A log that keeps its writers waiting holds up nobody else.

The worker still hears its group, sends heartbeats for its tasks, and stops them when the group is
out of reach.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.herder import messages as m
from headgate.host.work import Work
from headgate.membership.messages import GroupRequest, GroupResponse, Heartbeat
from headgate.ports import LogRecord, TransportError
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.worker.logs import ThreadedLogs, _Latest
from headgate_runtime.worker.loop import Worker, WorkerConfig

SETTINGS = {
    "headgate.task.runner": "thread",
    "session.timeout.ms": "1200",
    "heartbeat.interval.ms": "200",
    "rebalance.timeout.ms": "2000",
}
SECONDS = 30


class Gate:
    """A gate at which callers wait while it is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.held = 0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*args: Any, **kwargs: Any) -> Any:
            self.held += not self.open.is_set()
            assert self.open.wait(SECONDS)
            return call(*args, **kwargs)

        return wait


class Group:
    """The embedded one; `away`: as brokers that are not there."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.away = False
        self.beats: list[float] = []

    def send(self, request: GroupRequest) -> None:
        if isinstance(request, Heartbeat):
            self.beats.append(time.monotonic())
        self._group.send(request)

    def receive(self) -> Sequence[GroupResponse]:
        if self.away:
            raise TransportError("coordinator of group headgate: connection refused")
        found: Sequence[GroupResponse] = self._group.receive()
        return found


class SlowTransport:
    """The embedded log, made as slow as it pleases the test."""

    def __init__(self, inner: EmbeddedTransport, gate: Gate) -> None:
        for name in ("offset_log", "record_log", "fencer", "peers", "clock"):
            setattr(self, name, getattr(inner, name))
        self.config_log, self.status_log = inner.config_log, inner.status_log
        self.group = Group(inner.group)
        for port, names in (
            (self.config_log, ("append", "claim", "end")),
            (self.status_log, ("append",)),
        ):
            for name in names:
                setattr(port, name, gate.wrap(getattr(port, name)))
        self._inner = inner

    def subscribe(self, on_change: Callable[[], None]) -> bool:
        return self._inner.subscribe(on_change)

    def changed(self) -> bool:
        return self._inner.changed() or self.group.away

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def slow(tmp_path: Path, gate: Gate) -> Iterator[Worker]:
    """A worker that leads, on a thread of its own."""
    inner = open_transport(transport_settings(tmp_path), url="w")
    config = WorkerConfig("w", "w", {"kind": "kafka"}, SETTINGS)
    transport: Any = SlowTransport(inner, gate)
    worker = Worker(config, WorkerSettings.parse(SETTINGS), transport)
    thread = threading.Thread(target=worker.run)
    thread.start()
    until(lambda: leads(worker))
    yield worker
    gate.open.set()
    worker.stop()
    thread.join(SECONDS)
    assert not thread.is_alive()


def leads(worker: Worker) -> bool:
    view = worker.herder.view()
    return view.settled and view.leader == view.member_id != ""


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def asked(folder: Path, call: Any, timeout_ms: int = 20_000) -> m.Result:
    transport = open_transport(transport_settings(folder), url="user")
    try:
        return transport.peers.call("w", call, 0, timeout_ms)
    finally:
        transport.close()


def test_a_write_that_hangs_stops_neither_beats_nor_answers(
    slow: Worker, gate: Gate, tmp_path: Path
) -> None:
    generation = slow.herder.view().generation
    gate.open.clear()
    answers: list[m.Result] = []
    config = {"connector.class": "FileStreamSource", "topic": "t", "file": "none", "name": "c"}
    user = threading.Thread(
        target=lambda: answers.append(asked(tmp_path, m.PutConnectorConfig("c", config)))
    )
    user.start()
    until(lambda: gate.held > 0)
    began = time.monotonic()
    while time.monotonic() < began + 4:  # more than three sessions
        assert slow.alive()
        time.sleep(0.02)
    assert isinstance(asked(tmp_path, m.DescribeWorker()), m.Success)
    group: Any = slow.transport.group
    beats = [beat for beat in group.beats if beat > began]
    assert len(beats) >= 10
    assert slow.herder.view().generation == generation
    assert not answers
    gate.open.set()
    user.join(SECONDS)
    assert isinstance(answers[0], m.Success)


def test_out_of_reach_it_gives_up_its_work_while_a_write_hangs(
    slow: Worker, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[m.Command] = []
    handle = slow._handle

    def listen(command: m.Command) -> None:
        told.append(command)
        handle(command)

    monkeypatch.setattr(slow, "_handle", listen)
    gate.open.clear()
    group: Any = slow.transport.group
    group.away = True
    until(lambda: any(isinstance(command, m.CoordinatorLost) for command in told))
    assert slow.alive()
    group.away = False
    gate.open.set()
    until(lambda: leads(slow))


def test_an_end_is_told_at_once_where_nothing_else_changes(
    slow: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[m.Command] = []
    handle = slow._handle
    monkeypatch.setattr(slow, "_handle", lambda command: (told.append(command), handle(command)))
    monkeypatch.setattr(slow.transport, "changed", lambda: False)
    for token in range(1_000, 1_020):
        slow.host.perform([m.ReadConfigToEnd(token)])
        began = time.monotonic()
        until(lambda token=token: m.ConfigEndRead(token) in told)  # type: ignore[misc]
        assert time.monotonic() < began + 1


# -- the threads themselves --


class Log:
    """A config log and a status log in one: what was written, and the errors that may come."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.away = 0
        """So many writes fail."""
        self.records: list[LogRecord] = []
        self.ends = 0

    def claim(self, generation: int) -> None:
        self.written.append(generation)

    def append(self, records: Sequence[Any], *, privileged: bool = False) -> int:
        if self.away:
            self.away -= 1
            raise TransportError("out of reach")
        if any(value == b"bug" for _, value in records):
            raise KeyError("a bug")
        self.written.append(list(records))
        return len(self.written)

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        found = self.records[position : position + limit]
        return found, position + len(found)

    def end(self) -> int:
        self.ends += 1
        if self.away:
            self.away -= 1
            raise TransportError("out of reach")
        return len(self.records)


class Ports:
    def __init__(self) -> None:
        self.config_log: Any = Log()
        self.status_log: Any = Log()


@pytest.fixture
def ports() -> Ports:
    return Ports()


@pytest.fixture
def posted() -> list[m.Command]:
    return []


@pytest.fixture
def logs(ports: Ports, posted: list[m.Command]) -> Iterator[ThreadedLogs]:
    made = ThreadedLogs(ports, {}, posted.append, lambda: None)
    yield made
    made.close()


def give(logs: ThreadedLogs, effect: m.Effect) -> None:
    ports: Any = logs
    assert logs.run(Work((effect,), ports)) == ()


def test_claims_and_appends_keep_their_order(
    logs: ThreadedLogs, ports: Ports, posted: list[m.Command]
) -> None:
    ports.config_log.away = 0
    effects = [
        m.ClaimLeadership(1),
        m.AppendConfig(1, (("a", b"1"),), privileged=True),
        m.AppendConfig(2, (("a", b"2"),), privileged=True),
        m.ClaimLeadership(2),
        m.AppendConfig(3, (("a", b"3"),), privileged=False),
    ]
    for effect in effects:
        give(logs, effect)
    until(lambda: len(posted) == 5)
    assert ports.config_log.written == [1, [("a", b"1")], [("a", b"2")], 2, [("a", b"3")]]
    assert posted == [
        m.LeadershipClaimed(1),
        m.ConfigAppended(1, 2),
        m.ConfigAppended(2, 3),
        m.LeadershipClaimed(2),
        m.ConfigAppended(3, 5),
    ]


def test_a_failed_write_and_a_bug_are_answers(
    logs: ThreadedLogs, ports: Ports, posted: list[m.Command]
) -> None:
    ports.config_log.away = 1
    give(logs, m.AppendConfig(1, (("a", b"1"),), privileged=True))
    until(lambda: len(posted) == 1)
    give(logs, m.AppendConfig(2, (("a", b"bug"),), privileged=True))
    give(logs, m.AppendConfig(3, (("a", b"1"),), privileged=True))
    until(lambda: len(posted) == 3)
    assert posted == [
        m.ConfigAppendFailed(1, "out of reach", fenced=False),
        m.ConfigAppendFailed(2, "KeyError: 'a bug'", fenced=False),
        m.ConfigAppended(3, 1),
    ]


def test_what_is_read_comes_before_the_end_that_was_asked_for(
    logs: ThreadedLogs, ports: Ports, posted: list[m.Command]
) -> None:
    ports.config_log.records = [LogRecord(n, b"connector-%d" % n, None) for n in range(12_000)]
    give(logs, m.ReadConfigToEnd(7))
    until(lambda: ports.config_log.ends == 1)
    commands: list[m.Command] = []
    deadline = time.monotonic() + SECONDS
    while not any(isinstance(command, m.ConfigEndRead) for command in commands):
        assert time.monotonic() < deadline
        commands += logs.look()
    assert commands[-1] == m.ConfigEndRead(7)
    reads = [command for command in commands if isinstance(command, m.ConfigRead)]
    assert sum(len(command.events) for command in reads) == 12_000
    assert posted == []
    ports.config_log.away = 1
    give(logs, m.ReadConfigToEnd(8))
    until(lambda: posted == [m.ConfigEndRead(8, "out of reach")])


def test_statuses_wait_for_their_log_the_latest_of_each_key(
    logs: ThreadedLogs, ports: Ports, posted: list[m.Command]
) -> None:
    ports.status_log.away = 2
    logs.write_statuses([m.WriteStatus("a", b"1"), m.WriteStatus("b", b"1")])
    until(lambda: ports.status_log.away == 1)
    logs.write_statuses([m.WriteStatus("a", b"2")])
    logs.write_statuses([m.WriteStatus("c", b"1"), m.WriteStatus("a", b"3")])
    give(logs, m.ClaimLeadership(1))  # nor does the config topic wait for the status topic
    until(lambda: bool(posted))
    assert ports.status_log.written == []
    until(lambda: bool(ports.status_log.written))
    assert dict(item for batch in ports.status_log.written for item in batch) == {
        b"a": b"3",
        b"b": b"1",
        b"c": b"1",
    }
    assert [key for batch in ports.status_log.written for key, _ in batch].count(b"a") == 1


def test_the_last_statuses_are_written_before_the_end(ports: Ports) -> None:
    logs = ThreadedLogs(ports, {}, lambda _: None, lambda: None)
    logs.write_statuses([m.WriteStatus("a", b"UNASSIGNED")])
    logs.close()
    assert ports.status_log.written == [[(b"a", b"UNASSIGNED")]]


def test_what_came_while_a_write_failed_is_newer() -> None:
    waiting = _Latest()
    waiting.put([(b"a", b"1"), (b"b", b"1")])
    batch = waiting.take()
    assert batch is not None
    waiting.put([(b"a", b"2")])
    waiting.put_back(batch)
    assert dict(waiting.take() or ()) == {b"a": b"2", b"b": b"1"}


def test_who_awaits_statuses_is_told_when_they_are_written(
    logs: ThreadedLogs, ports: Ports, posted: list[m.Command]
) -> None:
    ports.status_log.away = 2
    logs.write_statuses([m.WriteStatus("a", b"1")])
    assert logs.await_statuses(5) == ()
    until(lambda: ports.status_log.away == 1)
    logs.write_statuses([m.WriteStatus("a", b"2")])
    assert posted == []
    until(lambda: bool(posted))
    assert posted == [m.StatusesWritten(5)]
    assert ports.status_log.written == [[(b"a", b"2")]]
    assert logs.await_statuses(6) == ()
    until(lambda: posted[1:] == [m.StatusesWritten(6)])
    assert ports.status_log.written == [[(b"a", b"2")]]


def test_statuses_that_are_lost_by_a_bug_are_awaited_no_longer(
    logs: ThreadedLogs, posted: list[m.Command]
) -> None:
    logs.write_statuses([m.WriteStatus("a", b"bug")])
    logs.await_statuses(5)
    until(lambda: posted == [m.StatusesWritten(5)])


def test_who_comes_while_a_write_is_under_way_awaits_that_and_all_since() -> None:
    waiting = _Latest()
    waiting.put([(b"a", b"1")])
    waiting.mark(1)
    batch = waiting.take()
    assert batch and waiting.taken == [1]
    waiting.put([(b"b", b"1")])
    waiting.mark(2)
    assert waiting.taken == [1]
    waiting.put_back(batch)
    assert dict(waiting.take() or ()) == {b"a": b"1", b"b": b"1"}
    assert waiting.taken == [1, 2]
    waiting.mark(3)
    assert waiting.take() == [] and waiting.taken == [3]
    waiting.close()
    assert waiting.take() is None


def test_statuses_are_read_to_their_end_where_that_is_asked_for(
    logs: ThreadedLogs, ports: Ports, posted: list[m.Command]
) -> None:
    ports.status_log.records = [LogRecord(n, b"status-connector-%d" % n, None) for n in range(9)]
    give(logs, m.ReadConfigToEnd(7, statuses=True))
    until(lambda: ports.status_log.ends == 1)
    commands: list[m.Command] = []
    deadline = time.monotonic() + SECONDS
    while m.ConfigEndRead(7) not in commands:
        assert time.monotonic() < deadline
        commands += logs.look()
    assert isinstance(commands[0], m.StatusRead) and len(commands[0].records) == 9
    ports.status_log.away = 1
    give(logs, m.ReadConfigToEnd(8, statuses=True))
    until(lambda: posted == [m.ConfigEndRead(8, "out of reach")])
    give(logs, m.ReadConfigToEnd(9))
    until(lambda: m.ConfigEndRead(9) in list(logs.look()))
    assert ports.status_log.ends == 2
