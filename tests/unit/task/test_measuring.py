"""A body measures commit times and bytes beside its records."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.task.body_bench import BodyBench
from support.task.sink_records import fill

from headgate import wire
from headgate.connector.api import (
    RetriableError,
    SinkRecord,
    SinkTask,
    SourceRecord,
    SourceTask,
    Transform,
)
from headgate.ports import BatchProducer, LogBatch, ProducerRecord, ValueColumn
from headgate.task.messages import Measured, TaskKind, TaskProgress, TaskReport
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.consumer import EmbeddedConsumer
from headgate_embedded.logs import EmbeddedKeyedLog
from headgate_embedded.producer import EmbeddedProducer
from headgate_runtime.tasks import body
from headgate_runtime.tasks.measuring import Meter, metered
from headgate_runtime.tasks.sink_lag import partition_lag

SLOW_S = 0.05
VALUES = [b"1", b"two", b"drei", b"x" * 1_000]


class Source(SourceTask):
    """Gives a record after the other, then nothing."""

    def start(self, config: Mapping[str, str]) -> None:
        self.left = list(VALUES)

    def poll(self) -> Sequence[SourceRecord]:
        if not self.left:
            return ()
        value = self.left.pop(0)
        return [SourceRecord({"p": 1}, {"n": len(self.left)}, "t", value.decode(), "key")]


class Sink(SinkTask):
    def put(self, records: Sequence[SinkRecord]) -> None: ...


def measured(bench: BodyBench) -> Measured:
    found = bench.progress.measured
    assert found is not None
    return found


def slow(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
    """Let a method take at least `SLOW_S`."""
    plain: Callable[..., Any] = getattr(kind, name)

    def slowly(*args: Any, **named: Any) -> Any:
        time.sleep(SLOW_S)
        return plain(*args, **named)

    monkeypatch.setattr(kind, name, slowly)


def bytes_in_log(folder: Path) -> int:
    transport = open_transport(transport_settings(folder))
    try:
        (end,) = transport.record_log.end_offsets(["t"]).values()
        records = transport.record_log.read("t", 0, 0, end, 1_000)
        assert len(records) == end
        return sum(len(each.key or b"") + len(each.value or b"") for each in records)
    finally:
        transport.close()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, exactly_once: bool) -> None:
    """Without exactly-once, a commit is one of the source's offsets."""
    if exactly_once:
        slow(monkeypatch, EmbeddedProducer, "commit")
    else:
        slow(monkeypatch, EmbeddedKeyedLog, "append")
    bench = BodyBench(tmp_path, Source, {}, exactly_once=exactly_once).start()
    bench.until(lambda: bench.progress.records == len(VALUES))
    bench.stop()
    found = measured(bench)
    assert found.data_bytes == bytes_in_log(tmp_path) > 1_000
    assert found.commits == bench.progress.commits >= 1
    assert found.commit_ms >= found.commits * SLOW_S * 1000
    assert found.lag is None


class Flushing(Sink):
    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        time.sleep(SLOW_S)
        return offsets


@pytest.mark.parametrize("slowly", ["pre_commit", "commit"])
def test_a_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slowly: str) -> None:
    fill(tmp_path, VALUES)
    task = Flushing if slowly == "pre_commit" else Sink
    if slowly == "commit":
        slow(monkeypatch, EmbeddedConsumer, "commit")
    bench = BodyBench(tmp_path, task, {"topics": "t"}, kind=TaskKind.SINK).start()
    bench.until(lambda: bench.progress.records == len(VALUES))
    bench.stop()
    found = measured(bench)
    assert found.data_bytes == bytes_in_log(tmp_path)
    assert found.commits == bench.progress.commits >= 1
    assert found.commit_ms >= found.commits * SLOW_S * 1000


class HoldsBack(Sink):
    """Nothing of it may be committed."""

    asked = 0

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        type(self).asked += 1
        return {}


def test_a_commit_of_nothing_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "MEASURE_MS", 20)
    fill(tmp_path, VALUES)
    bench = BodyBench(tmp_path, HoldsBack, {"topics": "t"}, kind=TaskKind.SINK).start()
    bench.until(lambda: HoldsBack.asked >= 2 and bench.progress.measured is not None)
    bench.stop()
    assert (measured(bench).commits, measured(bench).commit_ms) == (0, 0)


class HoldsBackOnce(Sink):
    """Takes its time before it says that nothing may be committed yet."""

    asked = 0

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        type(self).asked += 1
        if self.asked > 1:
            return offsets
        time.sleep(1.5)
        return {}


def test_the_time_of_a_commit_of_nothing_is_no_part_of_the_next(tmp_path: Path) -> None:
    fill(tmp_path, VALUES)
    bench = BodyBench(tmp_path, HoldsBackOnce, {"topics": "t"}, kind=TaskKind.SINK).start()
    bench.until(lambda: bench.progress.records == len(VALUES))
    bench.stop()
    assert measured(bench).commits >= 1
    assert measured(bench).commit_ms < 1_500


class PutsTwice(Sink):
    puts = 0

    def put(self, records: Sequence[SinkRecord]) -> None:
        type(self).puts += bool(records)
        if self.puts == 1:
            raise RetriableError("not yet")


class Twice(Transform):
    """The first attempt fails."""

    tries = 0

    def apply(self, record: Any) -> Any:
        type(self).tries += 1
        if self.tries == 1:
            raise RetriableError("not yet")
        return record

    apply_sink = apply


@pytest.mark.parametrize("which", ["put", "transform"])
def test_what_is_tried_again_counts_once(tmp_path: Path, which: str) -> None:
    fill(tmp_path, VALUES)
    task = PutsTwice if which == "put" else Sink
    chain = [Twice()] if which == "transform" else []
    config = {"topics": "t", "errors.retry.timeout": "60000", "errors.retry.delay.max.ms": "300"}
    bench = BodyBench(tmp_path, task, config, kind=TaskKind.SINK, chain=chain).start()
    bench.until(lambda: bench.progress.records == len(VALUES))
    bench.stop()
    assert PutsTwice.puts >= 2 or Twice.tries >= 2
    assert measured(bench).data_bytes == bytes_in_log(tmp_path)


def test_what_changes_without_a_report_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that finds nothing has nothing else to report."""
    monkeypatch.setattr(body, "MEASURE_MS", 20)
    fill(tmp_path, [])
    bench = BodyBench(tmp_path, Sink, {"topics": "t"}, kind=TaskKind.SINK).start()
    bench.until(lambda: bench.progress.measured is not None)
    time.sleep(0.2)
    told = [each for each in bench.reports if isinstance(each, TaskProgress)]
    assert len(told) == 1, "said once"
    found = measured(bench)
    assert (found.commits, found.data_bytes, found.read) == (0, 0, 0)
    bench.stop()


class Log:
    """A producer that does as it is told."""

    def __init__(self, **does: Callable[..., Any]) -> None:
        self.calls: list[str] = []
        self._does = does

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.calls.append(name)
            return self._does[name](*args) if name in self._does else None

        return call


def sent(*values: bytes) -> list[ProducerRecord]:
    return [ProducerRecord("t", None, b"k", value) for value in values]


def test_what_is_aborted_does_not_count() -> None:
    meter = Meter()
    producer = metered(Log(), meter)  # type: ignore[arg-type]
    producer.send(sent(b"abc"))
    producer.abort()
    assert meter.read().data_bytes == 0
    producer.send(sent(b"abcd"))
    assert meter.read().data_bytes == 0, "it is not committed"
    producer.commit([])
    assert meter.read().data_bytes == 5


def test_a_commit_that_is_awaited_later_takes_what_is_waited_for_it() -> None:
    """The task is polled meanwhile: that is none of it."""
    meter = Meter()
    log: Any = Log(begin_commit=lambda _offsets: lambda: time.sleep(SLOW_S))
    producer = metered(log, meter)
    end = producer.begin_commit([])
    assert end is not None
    time.sleep(3 * SLOW_S)
    assert meter.read().commits == 0
    end()
    assert meter.read().commits == 1
    assert SLOW_S <= meter.read().commit_ms / 1000 < 3 * SLOW_S


def test_tries_that_failed_are_part_of_the_commit() -> None:
    meter, fails = Meter(), [True, False]

    def commit(_offsets: object) -> None:
        time.sleep(SLOW_S)
        if fails.pop(0):
            raise OSError("away")

    producer: Any = metered(Log(commit=commit), meter)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="away"):
        producer.commit([])
    assert (meter.read().commits, meter.read().commit_ms) == (0, 0)
    producer.commit([])
    assert meter.read().commits == 1
    assert meter.read().commit_ms >= 2 * SLOW_S * 1000


def test_batches_and_columns_count_as_they_are_sent() -> None:
    meter = Meter()
    log: Any = Log()
    log.send_batch = lambda _batch: None
    producer: Any = metered(log, meter)
    batch = LogBatch("t", None, 10, b"key", (), None, b"{}", b"d" * 500)
    producer.send_batch(batch)
    producer.send_values(ValueColumn("t", None, b"key", [b"1", b"22"]))
    producer.acks()
    assert meter.read().data_bytes == 503 + 9
    meter.given(batch)
    assert meter.read().data_bytes == 2 * 503 + 9
    batch.skip = 5
    meter.given(batch)
    assert meter.read().data_bytes == 2 * 503 + 9 + 253


def test_a_log_that_keeps_batches_does_so_behind_the_meter() -> None:
    plain: Any = SimpleNamespace()
    assert not isinstance(metered(plain, Meter()), BatchProducer)
    plain.send_batch = print
    assert isinstance(metered(plain, Meter()), BatchProducer)


def test_bodies_and_workers_of_other_versions() -> None:
    """A missing measurement counts as unknown, and an unknown one is left out."""
    progress = TaskProgress(5, 0, False, measured=Measured(1, 2, 3, 4))
    text = wire.dumps(progress)
    assert wire.loads(TaskReport, text) == progress
    older = text.replace(b',"measured":{"type":"Measured"', b',"something":{"type":"Else"')
    assert wire.loads(TaskReport, older) == TaskProgress(5, 0, False)


@pytest.mark.parametrize(
    ("figures", "lag"),
    [
        # end, committed, position, pending, read to
        ((None, 5, 5, 0, 5), None),  # brokers have told nothing
        ((10, 4, 4, 0, None), 6),
        ((10, 4, 8, 4, None), 6),
        ((10, 4, 8, None, 10), 6),
        ((10, 9, 9, 0, 10), 0),  # a marker of a transaction is behind the last record
        ((10, 9, 10, 1, 10), 1),
        ((10, None, 8, 3, None), 5),  # nothing is committed yet
        ((10, None, 8, None, None), None),
        ((10, None, None, 0, None), None),  # nothing was read yet
        ((10, None, None, 0, 10), 0),
        ((12, None, None, 0, 10), 2),
        ((3, 4, 4, 0, None), 0),  # what is known of the end is older
    ],
)
def test_the_lag_of_a_partition(figures: Any, lag: int | None) -> None:
    assert partition_lag(*figures) == lag


class Gate(Sink):
    """Nothing may be committed while it is shut."""

    shut = True

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        return {} if self.shut else offsets


def test_the_lag_of_a_sink_whose_consumer_knows_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer on brokers knows the ends. On other logs a task reports no lag."""
    places: dict[str, Any] = {"known_ends": {("t", 0): 7}, "known_positions": {}}
    for name, found in places.items():
        monkeypatch.setattr(EmbeddedConsumer, name, lambda _self, found=found: found, raising=False)
    monkeypatch.setattr(body, "MEASURE_MS", 20)
    monkeypatch.setattr(Gate, "shut", True)
    fill(tmp_path, VALUES)
    bench = BodyBench(tmp_path, Gate, {"topics": "t"}, kind=TaskKind.SINK).start()
    bench.until(lambda: bench.progress.measured is not None and measured(bench).lag == 7)
    assert measured(bench).commits == 0
    Gate.shut = False
    bench.until(lambda: measured(bench).lag == 3)
    places["known_positions"]["t", 0] = 7
    bench.until(lambda: measured(bench).lag == 0)
    bench.stop()
