"""The embedded log keeps batches of Arrow rows as they are, and also gives them as records."""

import dataclasses
import os
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest
from support.data.every_type import every_type

from headgate.connector.text_converters import TypedConverter
from headgate.ports import (
    BatchConsumer,
    BatchProducer,
    ConsumerRecord,
    LogBatch,
    ProducerRecord,
    RowNumbers,
    TransactionOverError,
)
from headgate_arrow import arrow_types, rows
from headgate_embedded import EmbeddedTransport, RefusedError, open_transport, schema
from headgate_embedded.batches import COMPRESSIONS, decode, decode_batch, encode_batch
from headgate_embedded.producer import BYTES_PER_BATCH, EmbeddedProducer

T0 = ("t", 0)


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    opened = open_transport({"path": str(tmp_path)})
    opened.record_log.create_topic("t", 1)
    yield opened
    opened.close()


def batch_of(table: Any, **more: Any) -> LogBatch:
    columns = arrow_types.struct_schema(table.schema)
    values = rows.record_batch(table.cast(arrow_types.arrow_schema(columns)))
    given: dict[str, Any] = {"key": b"k", "headers": (), "timestamp_ms": 5, **more}
    return LogBatch(
        topic="t",
        partition=None,
        count=table.num_rows,
        schema=rows.schema_bytes(columns),
        data=rows.to_bytes(values),
        **given,
    )


def numbers(start: int, end: int) -> LogBatch:
    return batch_of(pa.table({"n": range(start, end)}))


def producer_of(transport: EmbeddedTransport) -> EmbeddedProducer:
    return transport.record_log.producer("c", None, None)


def write(transport: EmbeddedTransport, *given: LogBatch | ProducerRecord) -> None:
    producer = producer_of(transport)
    for one in given:
        producer.send_batch(one) if isinstance(one, LogBatch) else producer.send([one])
    producer.acks()


def record(text: str) -> ProducerRecord:
    return ProducerRecord("t", None, None, text.encode())


def read_all(transport: EmbeddedTransport, start: int = 0, limit: int = 7) -> list[ConsumerRecord]:
    end = transport.record_log.end_offsets(["t"])[T0]
    found: list[ConsumerRecord] = []
    while start < end:
        found += transport.record_log.read("t", 0, start, end, limit)
        start = found[-1].offset + 1
    return found


def n_of(record: ConsumerRecord) -> int:
    value = TypedConverter().to_connect("t", record.value)
    return int(value["n"] if isinstance(value, dict) else value)


HEADERS = (
    ("file", b"a"),
    ("none", None),
    ("at", RowNumbers(range(100, 300, 100))),
    ("where", RowNumbers([-5, 2**62])),
)


@pytest.mark.parametrize("compression", sorted(COMPRESSIONS.values()))
@pytest.mark.parametrize("start", [40, 41, 42])
def test_a_batch_comes_back_from_any_offset_on(start: int, compression: int) -> None:
    batch = batch_of(pa.table(every_type()), headers=HEADERS)
    data = encode_batch(batch, 77, compression)
    found = decode_batch("t", 3, 41, data, start)
    assert dataclasses.replace(found, data=bytes(found.data)) == dataclasses.replace(
        batch, partition=3, offset=41, skip=max(start - 41, 0)
    )
    records = decode("t", 3, 41, data, start)
    values = rows.typed_values(batch.schema, batch.data, 0, 2)
    assert records == [
        ConsumerRecord("t", 3, 41 + at, b"k", values[at], headers, 5)
        for at, headers in (
            (0, (("file", b"a"), ("none", None), ("at", b"100"), ("where", b"-5"))),
            (1, (("file", b"a"), ("none", None), ("at", b"200"), ("where", b"%d" % 2**62))),
        )
        if 41 + at >= start
    ]


def test_a_batch_without_time_gets_that_of_the_log() -> None:
    batch = batch_of(pa.table({"n": [1]}), timestamp_ms=None, key=None)
    (found,) = decode("t", 0, 0, encode_batch(batch, 77))
    assert (found.timestamp_ms, found.key) == (77, None)


def test_records_and_batches_keep_their_order(transport: EmbeddedTransport) -> None:
    write(transport, record("0"), numbers(1, 21), record("21"), record("22"), numbers(23, 30))
    for start in (0, 1, 15, 22, 29):
        found = read_all(transport, start)
        assert [(one.offset, n_of(one)) for one in found] == [(n, n) for n in range(start, 30)]


def test_a_consumer_of_records_gets_records(transport: EmbeddedTransport) -> None:
    write(transport, record("0"), numbers(1, 21), record("21"))
    consumer = transport.record_log.consumer("g", frozenset(["t"]), "c")
    found: list[ConsumerRecord] = []
    while len(found) < 22:
        polled = consumer.poll(7, 100)
        assert len(polled) <= 7
        found += polled
    assert [(one.offset, n_of(one)) for one in found] == [(n, n) for n in range(22)]
    consumer.close()


def test_a_consumer_of_batches_gets_them_whole(transport: EmbeddedTransport) -> None:
    write(transport, record("0"), numbers(1, 21), numbers(21, 25), record("25"))
    consumer = transport.record_log.consumer("g", frozenset(["t"]), "c")
    assert isinstance(consumer, BatchConsumer)
    assert isinstance(producer_of(transport), BatchProducer)
    while not (first := consumer.poll_batch(7, 100)):
        pass
    assert not isinstance(first, LogBatch)
    assert [one.offset for one in first] == [0]
    second = consumer.poll_batch(7, 100)
    assert isinstance(second, LogBatch)
    assert (second.offset, second.count, second.skip) == (1, 20, 0)
    assert rows.from_bytes(second.data).to_pydict() == {"n": [*range(1, 21)]}
    consumer.seek(T0, 5)
    again = consumer.poll_batch(7, 100)
    assert isinstance(again, LogBatch)
    assert (again.offset, again.count, again.skip) == (1, 20, 4)
    third = consumer.poll_batch(7, 100)
    assert isinstance(third, LogBatch)
    assert (third.offset, third.count) == (21, 4)
    last = consumer.poll_batch(7, 100)
    assert not isinstance(last, LogBatch)
    assert [one.offset for one in last] == [25]
    consumer.close()


def test_places_of_rows_are_told_one_by_one(transport: EmbeddedTransport) -> None:
    producer = producer_of(transport)
    producer.keep_places()
    producer.send([record("0")])
    producer.send_batch(numbers(1, 4))
    producer.send([record("4")])
    assert [(ack.first, ack.last) for ack in producer.acks()] == [(0, 4)]
    assert [(number, place.offset) for number, place in producer.places()] == [
        (n, n) for n in range(5)
    ]


def version_in(path: Path) -> int:
    return struct.unpack_from(">I", (path / schema.FILE_NAME).read_bytes(), 60)[0]  # type: ignore[no-any-return]


def test_a_folder_with_batches_says_so_and_an_older_headgate_refuses_it(
    transport: EmbeddedTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(transport, record("0"))
    assert version_in(tmp_path) == 1
    write(transport, numbers(1, 3))
    assert version_in(tmp_path) == 2  # at once: while others have it open
    open_transport({"path": str(tmp_path)}).close()
    monkeypatch.setattr(schema, "VERSIONS", (1,))
    with pytest.raises(RefusedError, match="has schema version 2, expected 1"):
        open_transport({"path": str(tmp_path)})


def test_the_version_is_part_of_the_transaction(
    transport: EmbeddedTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_of(transport)
    producer.send_batch(numbers(0, 3))

    def fails(*_: object) -> None:
        raise apsw.FullError("disk full")

    monkeypatch.setattr("headgate_embedded.producer.append_latest", fails)
    with pytest.raises(Exception, match="disk full"):
        producer.acks()
    transport.close()
    assert version_in(tmp_path) == 1


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_what_is_read_in_part_is_read_on(transport: EmbeddedTransport, limit: int) -> None:
    write(transport, numbers(0, 20), record("20"), numbers(21, 30))
    consumer = transport.record_log.consumer("g", frozenset(["t"]), "c")
    while not (found := list(consumer.poll(limit, 100))):
        pass
    consumer.seek(T0, 3)  # what was read and not polled counts for nothing
    found = []
    while len(found) < 27:
        found += consumer.poll(limit, 100)
    assert [(one.offset, n_of(one)) for one in found] == [(n, n) for n in range(3, 30)]
    consumer.close()


def test_a_batch_that_waits_its_turn_is_given_next(transport: EmbeddedTransport) -> None:
    transport.record_log.create_topic("u", 1)
    write(transport, ProducerRecord("u", 0, None, b"0"), numbers(0, 20))
    consumer = transport.record_log.consumer("g", frozenset(["t", "u"]), "c")
    found: list[Any] = []
    while len(found) < 2:
        if polled := consumer.poll_batch(7, 100):
            found.append(polled)
    kinds = [isinstance(one, LogBatch) for one in found]
    assert sorted(kinds) == [False, True]
    assert consumer.poll_batch(7, 0) == []
    consumer.close()


@pytest.mark.parametrize("transactional", [True, False])
def test_a_row_that_is_too_large_is_refused_by_its_number(
    tmp_path: Path, transactional: bool
) -> None:
    """The other rows of its batch are weighed by themselves."""
    limit = {"log.max.message.bytes": "1000"}
    with closing(open_transport({"path": str(tmp_path), **limit})) as transport:
        transport.record_log.create_topic("t", 1)
        producer = transport.record_log.producer("c", "x" if transactional else None, None)
        texts = ["a" * 500, "b" * 1001, "c" * 500]
        batch = batch_of(pa.table({"text": texts}), key=None)
        if transactional:
            producer.init()
            producer.send([record("0")])
            with pytest.raises(TransactionOverError, match="at most 1000") as caught:
                producer.send_batch(batch)
            assert caught.value.place == 1
            return
        producer.send([record("0")])
        producer.send_batch(batch)
        acks = [(ack.first, ack.last, bool(ack.error)) for ack in producer.acks()]
        assert acks == [(0, 1, False), (2, 2, True), (3, 3, False)]
        assert len(read_all(transport)) == 3


def test_records_of_many_bytes_do_not_share_a_blob(transport: EmbeddedTransport) -> None:
    """2,000 records of 1 MB would be above SQLite's limit of 1 GB."""
    size = BYTES_PER_BATCH // 5
    producer = producer_of(transport)
    producer.send([ProducerRecord("t", None, None, os.urandom(8) * (size // 8)) for _ in range(12)])
    producer.send([record("small")])
    producer.send([ProducerRecord("t", None, None, b"x" * (BYTES_PER_BATCH + 1)), record("last")])
    producer.acks()
    with transport.record_log._database.read() as connection:
        found = list(
            connection.execute("select base, count, length(data) from batches order by id")
        )
    assert [count for _, count, _ in found] == [5, 5, 3, 1, 1]
    assert all(length <= BYTES_PER_BATCH + 1000 for _, _, length in found)
    assert len(read_all(transport)) == 15
