"""An idle consumer looks more and more seldom, and is awake again with the first record."""

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.ports import LogBatch, ProducerRecord
from headgate_arrow import arrow_types, rows
from headgate_embedded import open_transport, transport_settings

SLEEP = time.sleep


class SleepingClock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.thread = threading.current_thread()
        self.sleeps: list[float] = []

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is not self.thread:
            SLEEP(seconds)  # threads that other tests left sleep as well
            return
        self.sleeps.append(seconds)
        self.now_s += seconds


def test_pauses_grow_while_nothing_comes_and_shrink_with_the_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SleepingClock()
    transport = open_transport(transport_settings(tmp_path), clock=clock)
    transport.record_log.create_topic("t", 1)
    producer = transport.record_log.producer("p", None, None)
    consumer = transport.record_log.consumer("g", ["t"], "c")
    monkeypatch.setattr(time, "sleep", clock.sleep)
    while not consumer.assignment():
        consumer.poll(10, 100)
    consumer.poll(10, 1_000)
    clock.sleeps.clear()
    consumer.poll(10, 1_000)
    assert len(clock.sleeps) <= 51  # each millisecond would be a thousand
    producer.send([ProducerRecord("t", 0, None, b"1")])
    producer.acks()
    assert len(consumer.poll(10, 1_000)) == 1
    clock.sleeps.clear()
    consumer.poll(10, 5)
    assert clock.sleeps[0] == pytest.approx(0.001)
    consumer.close()
    transport.close()


def test_what_one_commit_brought_comes_poll_after_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else has to change for that, though the consumer had read all there was before."""
    transport = open_transport(transport_settings(tmp_path))
    transport.record_log.create_topic("t", 1)
    producer = transport.record_log.producer("p", "p", None)
    consumer: Any = transport.record_log.consumer("g", ["t"], "c")
    while not consumer.assignment():
        consumer.poll(10, 100)
    monkeypatch.setattr(consumer, "_keep_membership", lambda: None)  # which writes, too
    producer.init()
    records = [ProducerRecord("t", 0, None, b"v")] * 6
    for poll, size, send in (
        (consumer.poll, 2, lambda: producer.send(records)),
        (consumer.poll_batch, 3, lambda: [producer.send_batch(_batch(3)) for _ in range(3)]),
    ):
        while poll(10, 0) or not consumer._exhausted or consumer._watch.changed():
            pass
        send()
        assert not poll(10, 0), "it is not committed"
        producer.commit([])
        assert [_size(poll(size, 0)) for _ in range(4)] == [size, size, size, 0]
    consumer.close()
    transport.close()


def _size(found: Any) -> int:
    return found.count if isinstance(found, LogBatch) else len(found)


def _batch(count: int) -> LogBatch:
    table = pa.table({"n": range(count)})
    columns = arrow_types.struct_schema(table.schema)
    data = rows.to_bytes(rows.record_batch(table.cast(arrow_types.arrow_schema(columns))))
    schema = rows.schema_bytes(columns)
    return LogBatch("t", None, count, None, (), 5, schema, data)
