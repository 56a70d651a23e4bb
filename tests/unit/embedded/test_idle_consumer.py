"""An idle consumer rests more and more, and is awake again with the first record."""

import threading
import time
from pathlib import Path

import pytest

from headgate.ports import ProducerRecord
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
