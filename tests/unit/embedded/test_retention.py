"""Retention on the file: what a pass deletes, what holds it back, what is reported, and the
space."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headgate.log.retention import LimitsError, SinkReads, TopicLimits, limit_texts, parse_limits
from headgate.ports import ProducerRecord, TransactionOverError
from headgate.topics.config_records import encode_connector
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.database import Database
from headgate_embedded.retention import Passed, RecordsGoneError, Retention, give_back
from headgate_embedded.schema import FILE_NAME
from headgate_embedded.transport import EmbeddedTransport

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "out"}


class Log:
    """A log in a folder with one topic, `t`, and retention by a clock that the test moves."""

    def __init__(self, folder: Path, texts: Mapping[str, str]) -> None:
        self.folder = folder
        self.now_ms = 1_000_000
        self.limits = parse_limits(texts)
        self.transport: EmbeddedTransport = open_transport(transport_settings(folder, self.limits))
        self.transport.record_log.create_topic("t", 1)
        self.retention = Retention(
            Database(folder / FILE_NAME),
            self.limits,
            lambda config: "topics" in config or "topics.regex" in config,
            {},
            lambda: self.now_ms,
        )

    def append(self, batches: int, records: int = 10, size: int = 100) -> None:
        producer = self.transport.record_log.producer("p", None, None)
        for _ in range(batches):
            producer.send([ProducerRecord("t", 0, None, bytes(size)) for _ in range(records)])
            producer.acks()

    def create(self, connector: str, config: Mapping[str, str]) -> None:
        self.transport.config_log.append(
            [encode_connector(connector, dict(config))], privileged=False
        )

    def first(self) -> int:
        return self.transport.record_log.start_offsets(["t"])["t", 0]

    def end(self) -> int:
        return self.transport.record_log.end_offsets(["t"])["t", 0]

    def commit(self, group: str, offset: int) -> None:
        self.transport.record_log.commit_unguarded(group, {("t", 0): offset})

    def run(self) -> Passed:
        return self.retention.run()

    def close(self) -> None:
        self.retention.close()
        self.transport.close()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[Log]]:
    opened: list[Log] = []
    yield opened
    for log in opened:
        log.close()


def make(logs: list[Log], folder: Path, **texts: str) -> Log:
    log = Log(folder, {key.replace("_", "."): text for key, text in texts.items()})
    logs.append(log)
    return log


def test_by_bytes_the_newest_that_are_as_many_stay(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path, retention_bytes="5000")
    log.append(10)  # of about 1,100 bytes each
    passed = log.run()
    assert log.first() == 50
    (removed,) = passed.removed
    assert (removed.first, removed.end) == (0, 50)
    assert [r.offset for r in log.transport.record_log.read("t", 0, 50, 100, 100)] == [
        *range(50, 100)
    ]
    assert log.run() == Passed()


def test_by_time_a_record_stays_for_the_time_from_when_it_was_written(
    logs: list[Log], tmp_path: Path
) -> None:
    log = make(logs, tmp_path, retention_ms="10000")
    log.append(2)
    assert log.run() == Passed()
    log.now_ms += 6_000
    log.append(3)
    assert log.run() == Passed()
    log.now_ms += 3_999
    assert log.run() == Passed()
    log.now_ms += 1
    log.run()
    assert log.first() == 20
    log.now_ms += 10_000
    log.run()
    assert (log.first(), log.end()) == (50, 50)


def test_an_emptied_partition_goes_on_at_its_end(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path, retention_ms="0")
    log.append(2)
    log.run()
    assert (log.first(), log.end()) == (20, 20)
    with pytest.raises(RecordsGoneError, match=r"10 records of t-0 are gone: .* 10 to 19 "):
        log.transport.record_log.read("t", 0, 10, 20, 100)
    log.append(1)
    assert log.transport.record_log.read("t", 0, 20, 30, 100)[0].offset == 20


def test_what_a_sink_has_not_committed_stays(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path, retention_bytes="0")
    log.append(10)
    log.create("out", SINK)
    assert log.run().held_back[0].connector == "out"
    assert log.first() == 0
    log.commit("connect-out", 35)
    (held,) = log.run().held_back
    assert (held.offset, held.wanted, log.first()) == (35, 100, 30)
    log.create("late", {"connector.class": "X", "topics.regex": "t.*"})
    log.commit("connect-out", 100)
    log.run()
    assert log.first() == 30


@pytest.mark.parametrize("topics", ["${file:x:y}", "t"])
def test_a_sink_whose_topics_are_not_known_holds_back_all(
    logs: list[Log], tmp_path: Path, topics: str
) -> None:
    log = make(logs, tmp_path, retention_bytes="0")
    log.append(1)
    log.create("out", SINK | {"topics": topics})
    log.run()
    assert log.first() == 0


def test_a_sink_that_is_deleted_or_reads_another_topic_holds_back_nothing(
    logs: list[Log], tmp_path: Path
) -> None:
    log = make(logs, tmp_path, retention_bytes="0")
    log.append(1)
    log.create("out", SINK)
    log.create("other", SINK | {"topics": "u"})
    log.transport.config_log.append([("connector-out", None)], privileged=False)
    log.run()
    assert log.first() == 10


def test_a_sink_that_is_created_while_a_pass_reads_the_configs_holds_back(
    logs: list[Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make(logs, tmp_path, retention_bytes="0")
    log.append(1)
    real, looks = log.retention._reads, list[int]()

    def reads(limits: TopicLimits) -> tuple[list[SinkReads], int]:
        found = real(limits)
        if not looks:
            log.create("out", SINK)
        looks.append(found[1])
        return found

    monkeypatch.setattr(log.retention, "_reads", reads)
    (held,) = log.run().held_back
    assert (held.connector, log.first(), len(looks)) == ("out", 0, 2)


def test_marks_go_with_the_records_that_they_were_of(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path, retention_ms="10000")
    for _ in range(3):
        log.append(1)
        log.run()
        log.now_ms += 5_000
    log.run()
    assert log.first() == 20
    with Database(tmp_path / FILE_NAME).read() as connection:
        assert connection.execute("select next from retention_marks").fetchall() == [(30,)]


def test_past_sinks_the_reader_is_told_how_many_are_gone(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path, retention_bytes="3000", retention_past_sinks="true")
    log.append(10)
    log.create("out", SINK)
    log.commit("connect-out", 25)
    log.run()
    assert log.first() == 70
    consumer = log.transport.record_log.consumer("connect-out", ["t"], "c")
    with pytest.raises(RecordsGoneError, match=r"^45 records of t-0 are gone: .* 25 to 69 .*to 70"):
        for _ in range(100):
            consumer.poll(10, 100)
    consumer.close()


def test_a_reader_whose_next_records_are_deleted_while_it_reads_is_told(
    logs: list[Log], tmp_path: Path
) -> None:
    log = make(logs, tmp_path, retention_bytes="0", retention_past_sinks="true")
    log.append(3)
    consumer = log.transport.record_log.consumer("connect-out", ["t"], "c")
    while not consumer.poll(10, 100):
        pass
    log.run()
    with pytest.raises(RecordsGoneError, match=r"^20 records of t-0 are gone"):
        consumer.poll(10, 100)
    consumer.close()


def test_a_new_reader_begins_with_what_is_there_and_the_log_says_so(
    logs: list[Log], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = make(logs, tmp_path, retention_bytes="3000")
    log.append(10)
    log.run()
    consumer = log.transport.record_log.consumer("new", ["t"], "c")
    with caplog.at_level(logging.WARNING):
        while not (records := consumer.poll(10, 100)):
            pass
    consumer.seek(("t", 0), 0)
    assert records[0].offset == consumer.poll(10, 100)[0].offset == 70
    assert "retention deleted the 70 records before it" in caplog.text
    consumer.close()


def test_space_is_used_again_and_given_back(
    logs: list[Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make(logs, tmp_path, retention_bytes="1000000")
    sizes = []
    for _ in range(8):
        log.append(10, records=10, size=20_000)
        log.run()
        sizes.append((tmp_path / FILE_NAME).stat().st_size)
    assert max(sizes) < 8_000_000  # 16 MB were written
    monkeypatch.setattr("headgate_embedded.retention.SHRINK_BYTES_MIN", 1)
    kept = log.transport.record_log.read("t", 0, log.first(), log.end(), 10_000)
    freed = make(logs, tmp_path, retention_bytes="200000")
    freed.run()
    log.close()
    freed.close()
    logs.clear()
    database = Database(tmp_path / FILE_NAME)
    assert give_back(database) > 0
    assert (tmp_path / FILE_NAME).stat().st_size < max(sizes) / 2
    database.close()
    again = make(logs, tmp_path)
    left = again.transport.record_log.read("t", 0, again.first(), again.end(), 10_000)
    assert left == kept[-len(left) :]


# -- records that are too large --


def test_a_record_that_is_too_large_is_refused_by_name(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path, max_message_bytes="1000")
    producer = log.transport.record_log.producer("p", "p", None)
    producer.init()
    records = [ProducerRecord("t", 0, None, bytes(n)) for n in (1_000, 1_001)]
    with pytest.raises(TransactionOverError, match=r"topic t has 1001 bytes.*at most 1000") as told:
        producer.send(records)
    assert told.value.place == 1
    headed = ProducerRecord("t", 0, b"k" * 990, None, (("h", b"123456789"), ("i", None)))
    with pytest.raises(TransactionOverError, match="1001 bytes"):
        producer.send([headed])


def test_without_transactions_its_neighbours_are_written(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path, max_message_bytes="1000")
    producer = log.transport.record_log.producer("p", None, None)
    producer.keep_places()
    producer.send([ProducerRecord("t", 0, None, bytes(n)) for n in (1, 2, 2_000, 3)])
    acks = producer.acks()
    assert [(ack.first, ack.last, ack.error is None) for ack in acks] == [
        *((0, 1, True), (2, 2, False), (3, 3, True))
    ]
    assert [(number, place.offset) for number, place in producer.places()] == [
        *((0, 0), (1, 1), (3, 2))
    ]
    read = log.transport.record_log.read("t", 0, 0, 10, 10)
    assert [len(r.value or b"") for r in read] == [1, 2, 3]


def test_a_record_of_40_mb_comes_out_as_it_went_in(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path)
    values = [b"first", bytes(range(256)) * 160_000, b"last"]
    producer = log.transport.record_log.producer("p", "p", None)
    producer.init()
    producer.send([ProducerRecord("t", 0, None, value) for value in values])
    producer.commit([])
    assert len(values[1]) > 40_000_000
    read = log.transport.record_log.read("t", 0, 0, 3, 3)
    assert [one.value for one in read] == values


def test_many_large_records_are_many_batches(logs: list[Log], tmp_path: Path) -> None:
    log = make(logs, tmp_path)
    producer = log.transport.record_log.producer("p", "p", None)
    producer.init()
    producer.send([ProducerRecord("t", 0, None, bytes([n]) * 6_000_000) for n in range(9)])
    producer.commit([])
    with Database(tmp_path / FILE_NAME).read() as connection:
        rows = connection.execute("select base, count from batches order by base").fetchall()
    assert rows == [(0, 2), (2, 2), (4, 2), (6, 2), (8, 1)]
    read = log.transport.record_log.read("t", 0, 0, 9, 9)
    assert [(r.value or b"")[:1] for r in read] == [bytes([n]) for n in range(9)]


# -- settings --


def test_limits_of_one_topic_are_those_of_all_but_for_what_it_says() -> None:
    texts = {
        "retention.ms": "5",
        "max.message.bytes": "7",
        "topics.a.b.retention.ms": "-1",
        "topics.a.b.retention.past.sinks": "TRUE",
    }
    limits = parse_limits(texts)
    one = limits.of("a.b")
    assert (one.retention_ms, one.past_sinks, one.message_bytes) == (-1, True, 7)
    assert (limits.of("c").retention_ms, limits.keeps_all) == (5, False)
    assert parse_limits(limit_texts(limits)) == limits


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("retention.ms", "1h", "whole number from -1"),
        ("max.message.bytes", "0", "from 1 to 900000000"),
        ("topics.t.retention.past.sinks", "yes", "true or false"),
        ("retention", "1", "unknown key"),
        ("topics.t.retention.check.interval.ms", "1000", "unknown key"),
    ],
)
def test_settings_that_are_refused(key: str, text: str, expected: str) -> None:
    with pytest.raises(LimitsError, match=expected) as told:
        parse_limits({key: text})
    assert list(told.value.problems) == [key]
