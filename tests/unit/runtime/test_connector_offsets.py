"""Offsets of a connector are read, altered and reset. The tests look at the log and at the user's
answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headgate.connector.api import SinkConnector, SinkTask, SourceConnector, SourceTask
from headgate.connector.config import ConfigError
from headgate.herder.messages import (
    AlterConnectorOffsets,
    ErrorKind,
    Failure,
    ReadConnectorOffsets,
)
from headgate.membership.messages import JoinGroup
from headgate.ports import GroupInUseError, TransportError
from headgate.task.messages import TaskKind
from headgate.topics.offsets import encode_key, encode_value
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.logs import EmbeddedKeyedLog
from headgate_embedded.producer import EmbeddedProducer
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.worker import connector_offsets
from headgate_runtime.worker.connector_offsets import ConnectorOffsets

A, B = {"file": "a"}, {"file": "b"}


class Source(SourceConnector):
    TASK: ClassVar[type[SourceTask]] = SourceTask
    asked: ClassVar[list[Any]] = []
    refusal: ClassVar[Exception | None] = None
    handles: ClassVar[bool] = False

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Sequence[Any]) -> bool:
        cls.asked.append((dict(config), list(offsets)))
        if cls.refusal is not None:
            raise cls.refusal
        return cls.handles


class Sink(SinkConnector):
    TASK: ClassVar[type[SinkTask]] = SinkTask
    asked: ClassVar[list[Any]] = []
    written: ClassVar[Mapping[Any, int]] = {}
    """What its own record says."""

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[Any, Any]) -> bool:
        cls.asked.append(dict(offsets))
        return True

    @classmethod
    def reached_offsets(
        cls, config: Mapping[str, str], committed: Mapping[Any, int]
    ) -> Mapping[Any, int]:
        return {**committed, **cls.written}


OURS: dict[str, Any] = {}
"""What is answered to who asks whether the connector is still this worker's to alter, and what was
asked."""


def still_ours(effect: AlterConnectorOffsets) -> bool:
    OURS["asked"] = (effect.connector, effect.commit_offset)
    return bool(OURS["answer"])


MEMBER: list[Any] = []
"""Id and generation of the worker that alters offsets."""


def join(folder: Path) -> None:
    transport = open_transport(transport_settings(folder))
    member_id, generation = "", -1
    while generation < 0:
        request = JoinGroup("headgate", member_id, "w", "connect", (("p", b""),), 60_000, 60_000)
        transport.group.send(request)
        answers: list[Any] = []
        while not answers:
            answers += transport.group.receive()
        member_id = answers[0].member_id
        generation = answers[0].generation if answers[0].error is None else -1
    MEMBER[:] = [member_id, generation]
    transport.close()


@pytest.fixture
def offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConnectorOffsets:
    join(tmp_path)
    for known in (Source, Sink):
        monkeypatch.setattr(known, "asked", [])
    monkeypatch.setattr(Sink, "written", {})
    monkeypatch.setattr(Source, "refusal", None)
    monkeypatch.setattr(Source, "handles", False)
    monkeypatch.setattr(
        connector_offsets, "find_connector", lambda name: {"So": Source, "Si": Sink}[name]
    )
    monkeypatch.setitem(OURS, "answer", True)
    return ConnectorOffsets(transport_settings(tmp_path), WorkerSettings.parse({}), still_ours)


def read(offsets: ConnectorOffsets, kind: TaskKind = TaskKind.SOURCE) -> list[Any]:
    config = {"connector.class": "So" if kind is TaskKind.SOURCE else "Si"}
    answer = offsets.read(ReadConnectorOffsets(1, "c", config, kind))
    assert answer.failure is None
    return list(answer.offsets)


def alter(
    offsets: ConnectorOffsets,
    changes: Sequence[Any] | None,
    transactional_id: str | None = None,
    kind: TaskKind = TaskKind.SOURCE,
) -> Any:
    given = None if changes is None else tuple(changes)
    config: Any = {"connector.class": "So" if kind is TaskKind.SOURCE else "Si", "none": None}
    offsets.expect(7)
    return offsets.alter(
        AlterConnectorOffsets(7, "c", config, kind, given, transactional_id, *MEMBER, 5)
    )


@pytest.mark.parametrize("transactional_id", [None, "g-c-0"])
def test_of_a_source(
    offsets: ConnectorOffsets, tmp_path: Path, transactional_id: str | None
) -> None:
    answer = alter(offsets, [(A, {"n": 1}), (B, {"n": 1}), (A, {"n": 2})], transactional_id)
    assert (answer.token, answer.handled, answer.failure) == (7, False, None)
    assert Source.asked[0][0] == {"connector.class": "So"}
    assert read(offsets) == [(A, {"n": 2}), (B, {"n": 1})]
    alter(offsets, [(B, None)], transactional_id)
    assert read(offsets) == [(A, {"n": 2})]
    other = open_transport(transport_settings(tmp_path))
    other.offset_log.append([(encode_key("other", A), encode_value({"n": 9}))])
    other.close()
    Source.handles = True
    assert alter(offsets, None, transactional_id).handled
    assert Source.asked[-1][1] == [(A, None)]
    assert read(offsets) == []
    assert alter(offsets, None, transactional_id).failure is None  # nothing left, and no fault


def test_the_transaction_shuts_out_what_is_left_of_task_0(
    offsets: ConnectorOffsets, tmp_path: Path
) -> None:
    transport = open_transport(transport_settings(tmp_path))
    zombie = transport.record_log.producer("z", "g-c-0", None)
    zombie.init()
    alter(offsets, [(A, {"n": 1})], "g-c-0")
    with pytest.raises(Exception, match="shut out"):
        zombie.commit([(encode_key("c", A), encode_value({"n": 0}))])
    transport.close()
    assert read(offsets) == [(A, {"n": 1})]


@pytest.mark.parametrize("transactional_id", [None, "g-c-0"])
def test_nothing_is_written_when_others_took_over_meanwhile(
    offsets: ConnectorOffsets, monkeypatch: pytest.MonkeyPatch, transactional_id: str | None
) -> None:
    """The check comes after the producer is initialised. A worker that takes over after that fences
    this producer."""
    alter(offsets, [(A, {"n": 1})], transactional_id)
    assert OURS["asked"] == ("c", 5)
    monkeypatch.setitem(OURS, "answer", False)
    for changes in ([(A, {"n": 2})], None):
        failure = alter(offsets, changes, transactional_id).failure
        assert failure.kind is ErrorKind.CONFLICT
        assert "left as they are" in failure.message
    assert read(offsets) == [(A, {"n": 1})]


def test_a_worker_that_left_its_group_shuts_nobody_out(
    offsets: ConnectorOffsets, tmp_path: Path
) -> None:
    transport = open_transport(transport_settings(tmp_path))
    task = transport.record_log.producer("t", "g-c-0", None)
    task.init()
    MEMBER[0] = "gone"
    assert alter(offsets, [(A, {"n": 1})], "g-c-0").failure is not None
    task.commit([(encode_key("c", A), encode_value({"n": 5}))])
    transport.close()
    assert read(offsets) == [(A, {"n": 5})]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            NotImplementedError(),  # an input: what a connector raises that cannot (KIP-875)
            "Failed to modify offsets for connector c because it doesn't support external "
            "modification of offsets",
        ),
        (ValueError("n must be even"), "n must be even"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_connector_refuses(
    offsets: ConnectorOffsets, monkeypatch: pytest.MonkeyPatch, refusal: Exception, said: str
) -> None:
    alter(offsets, [(A, {"n": 2})])
    monkeypatch.setattr(Source, "refusal", refusal)
    for changes in ([(A, {"n": 3})], None):
        failure = alter(offsets, changes).failure
        assert (failure.kind, failure.message) == (ErrorKind.INTERNAL, said)
    assert read(offsets) == [(A, {"n": 2})]


@pytest.mark.parametrize(
    ("refusal", "level", "traceback"),
    [(ConfigError("position 3\nis no line"), "WARNING", False), (KeyError("n"), "ERROR", True)],
)
def test_a_traceback_is_logged_of_faults_and_not_of_refusals(
    offsets: ConnectorOffsets,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refusal: Exception,
    level: str,
    traceback: bool,
) -> None:
    monkeypatch.setattr(Source, "refusal", refusal)
    assert alter(offsets, [(A, {"n": 3})]).failure.message == str(refusal)
    (record,) = [each for each in caplog.records if "alter_offsets" in each.getMessage()]
    assert (record.levelname, record.exc_info is not None) == (level, traceback)
    assert "\n" not in record.getMessage()


def test_values_that_no_offset_can_have_are_the_users_fault(offsets: ConnectorOffsets) -> None:
    failure = alter(offsets, [(A, {"n": [1]})]).failure
    assert failure.kind is ErrorKind.BAD_REQUEST
    assert "Offsets may only contain primitive types as values" in failure.message
    assert read(offsets) == []


def test_of_a_sink(offsets: ConnectorOffsets, tmp_path: Path) -> None:
    def place(partition: int) -> dict[str, Any]:
        return {"kafka_topic": "t", "kafka_partition": partition}

    transport = open_transport(transport_settings(tmp_path))
    transport.record_log.create_topic("t", 2)
    transport.record_log.commit_unguarded("connect-c", {("t", 0): 5, ("t", 1): 6})
    sink = TaskKind.SINK
    assert read(offsets, sink) == [
        (place(0), {"kafka_offset": 5}),
        (place(1), {"kafka_offset": 6}),
    ]
    answer = alter(offsets, [(place(0), {"kafka_offset": 1}), (place(1), None)], kind=sink)
    assert (answer.handled, answer.failure) == (True, None)
    assert transport.record_log.committed("connect-c") == {("t", 0): 1}
    assert alter(offsets, None, kind=sink).failure is None
    assert Sink.asked == [{("t", 0): 1, ("t", 1): None}, {("t", 0): None}]
    assert transport.record_log.committed("connect-c") == {}
    transport.close()


@pytest.mark.parametrize(
    ("topic", "number", "words"),
    [
        ("tt", 0, "the log has no topic tt; look how it is spelled, or create it first"),
        ("t", 1, "the log has no partition t-1; t has only partition 0"),
    ],
)
def test_a_partition_that_is_not_there_has_no_offset(
    offsets: ConnectorOffsets, tmp_path: Path, topic: str, number: int, words: str
) -> None:
    """The class is not asked, which may write. One of a topic that was deleted meanwhile can be
    forgotten."""
    transport = open_transport(transport_settings(tmp_path))
    transport.record_log.create_topic("t", 1)
    transport.record_log.commit_unguarded("connect-c", {("t", 0): 5})

    def change(name: str, of: int, at: int | None) -> Any:
        place = {"kafka_topic": name, "kafka_partition": of}
        return (place, None if at is None else {"kafka_offset": at})

    changes = [change("t", 0, 1), change(topic, number, 1)]
    failure = alter(offsets, changes, kind=TaskKind.SINK).failure
    told = f"Failed to alter consumer group offsets for connector c: {words}"
    assert failure == Failure(ErrorKind.BAD_REQUEST, told)
    dry_run = ReadConnectorOffsets(1, "c", {}, TaskKind.SINK, tuple(changes))
    assert offsets.read(dry_run).failure == failure, "a dry run says the same"
    assert not Sink.asked
    assert transport.record_log.committed("connect-c") == {("t", 0): 5}
    forgotten = [change("t", 0, None), change("gone", 0, None)]
    assert alter(offsets, forgotten, kind=TaskKind.SINK).failure is None
    assert transport.record_log.committed("connect-c") == {}
    transport.close()


@pytest.mark.parametrize("what", ["alter", "reset"])
def test_a_sink_whose_zombie_holds_the_group(
    offsets: ConnectorOffsets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Clients look for Connect's words, and ask again."""

    def refuse(*_given: object) -> None:
        raise GroupInUseError("UNKNOWN_MEMBER_ID")

    transport = open_transport(transport_settings(tmp_path))
    transport.record_log.create_topic("t", 1)
    transport.record_log.commit_unguarded("connect-c", {("t", 0): 5})
    monkeypatch.setattr(type(transport.record_log), "commit_unguarded", refuse)
    place = {"kafka_topic": "t", "kafka_partition": 0}
    changes = [(place, {"kafka_offset": 1})] if what == "alter" else None
    failure = alter(offsets, changes, kind=TaskKind.SINK).failure
    assert failure.kind is ErrorKind.INTERNAL
    assert failure.message.startswith(f"Failed to {what} consumer group offsets for connector c")
    for words in ("can be safely retried", "zombie sink tasks", "UNKNOWN_MEMBER_ID"):
        assert words in failure.message
    transport.close()


def test_of_a_sink_whose_group_only_follows(
    offsets: ConnectorOffsets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset takes back all that it has written, whatever the group knows of it."""
    monkeypatch.setattr(Sink, "written", {("t", 0): 7, ("t", 1): 3})
    transport = open_transport(transport_settings(tmp_path))
    transport.record_log.create_topic("t", 2)
    transport.record_log.commit_unguarded("connect-c", {("t", 0): 5})
    told = [(place["kafka_partition"], at) for place, at in read(offsets, TaskKind.SINK)]
    assert told == [(0, {"kafka_offset": 7}), (1, {"kafka_offset": 3})]
    assert alter(offsets, None, kind=TaskKind.SINK).failure is None
    assert Sink.asked == [{("t", 0): None, ("t", 1): None}]
    assert transport.record_log.committed("connect-c") == {}
    transport.close()


def test_a_sink_is_not_asked_when_others_took_over_meanwhile(
    offsets: ConnectorOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OURS, "answer", False)
    failure = alter(offsets, None, kind=TaskKind.SINK).failure
    assert failure.kind is ErrorKind.CONFLICT
    assert (Sink.asked, OURS["asked"]) == ([], ("c", 5))


@pytest.mark.parametrize("transactional_id", [None, "g-c-0"])
@pytest.mark.parametrize("kind", TaskKind)
def test_nothing_is_written_when_the_class_comes_back_after_it_was_given_up(
    offsets: ConnectorOffsets,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: TaskKind,
    transactional_id: str | None,
) -> None:
    transport = open_transport(transport_settings(tmp_path))
    transport.record_log.create_topic("t", 1)
    transport.record_log.commit_unguarded("connect-c", {("t", 0): 5})
    alter(offsets, [(A, {"n": 1})], transactional_id)
    connector = Source if kind is TaskKind.SOURCE else Sink
    given_up: list[bool] = []

    def takes_long(_config: object, _offsets: object) -> bool:
        given_up.append(offsets.give_up(7))
        return True

    monkeypatch.setattr(connector, "alter_offsets", takes_long)
    place, at = {"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 1}
    change = (A, {"n": 2}) if kind is TaskKind.SOURCE else (place, at)
    failure = alter(offsets, [change], transactional_id, kind).failure
    assert given_up == [True]
    assert "time was over" in failure.message
    assert read(offsets) == [(A, {"n": 1})]
    assert transport.record_log.committed("connect-c") == {("t", 0): 5}
    transport.close()


@pytest.mark.parametrize("transactional_id", [None, "g-c-0"])
def test_what_is_being_written_is_not_given_up(
    offsets: ConnectorOffsets, monkeypatch: pytest.MonkeyPatch, transactional_id: str | None
) -> None:
    given_up: list[bool] = []
    port, name = (
        (EmbeddedKeyedLog, "append") if transactional_id is None else (EmbeddedProducer, "commit")
    )
    write = getattr(port, name)

    def writes(*args: Any) -> Any:
        given_up.append(offsets.give_up(7))
        return write(*args)

    monkeypatch.setattr(port, name, writes)
    assert alter(offsets, [(A, {"n": 1})], transactional_id).failure is None
    assert given_up == [False]
    assert read(offsets) == [(A, {"n": 1})]
    assert not offsets.give_up(7)  # nor what was written


@pytest.mark.parametrize("what", ["read", "alter"])
def test_out_of_reach(
    offsets: ConnectorOffsets, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def away(*_: object, **__: object) -> None:
        raise TransportError("no broker")

    monkeypatch.setattr(connector_offsets, "open_task_transport", away)
    if what == "alter":
        failure = alter(offsets, None).failure
    else:
        failure = offsets.read(ReadConnectorOffsets(1, "c", {}, TaskKind.SOURCE)).failure
    assert failure is not None
    assert failure.kind is ErrorKind.INTERNAL
    assert "connector c: no broker" in failure.message
