"""Batches of Arrow rows from the log to `put_batch`."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data.every_type import every_type
from support.task.body_bench import BodyBench
from support.task.sink_records import committed
from support.task.transforms import Keeps

from headgate.connector.api import RetriableError, SinkRecord, SinkTask
from headgate.connector.batches import SinkBatch
from headgate.ports import LogBatch, ProducerRecord, RowNumbers
from headgate.task.messages import TaskKind, TaskOutcome
from headgate_arrow import arrow_types, rows
from headgate_connectors.directory_sink import DirectorySinkTask
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_embedded.consumer import EmbeddedConsumer

TYPED = {"topics": "t", "value.converter": "TypedConverter"}


def batch_of(table: Any, **more: Any) -> LogBatch:
    columns = arrow_types.struct_schema(table.schema)
    values = rows.record_batch(table.cast(arrow_types.arrow_schema(columns)))
    headers = (("file", b"a"), ("at", RowNumbers(range(table.num_rows))))
    return LogBatch(
        *("t", more.pop("partition", 0), table.num_rows, more.pop("key", b"k"), headers, 5),
        *(rows.schema_bytes(columns), rows.to_bytes(values)),
    )


def numbers(start: int, end: int, **more: Any) -> LogBatch:
    return batch_of(pa.table({"n": range(start, end)}), **more)


def record(n: int) -> ProducerRecord:
    return ProducerRecord("t", 0, None, b"%d" % n)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    with closing(open_transport(transport_settings(tmp_path))) as transport:
        transport.record_log.create_topic("t", 2)
        yield transport


def fill(log: EmbeddedTransport, *given: LogBatch | ProducerRecord) -> None:
    producer = log.record_log.producer("test", None, None)
    for one in given:
        producer.send_batch(one) if isinstance(one, LogBatch) else producer.send([one])
        producer.acks()


class Taking(SinkTask):
    """A sink that keeps what it was given, with the rows of batches as records."""

    taken: list[tuple[str, SinkRecord]]
    refusals: int

    def takes_batches(self) -> bool:
        return True

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.taken += [("record", one) for one in records]

    def put_batch(self, batch: SinkBatch) -> None:
        if self.refusals:
            type(self).refusals -= 1
            raise RetriableError("full")
        self.taken += [("batch", one) for one in rows.sink_records(batch)]


def taking(refusals: int = 0, **more: Any) -> type[Taking]:
    return type("Sink", (Taking,), {"taken": [], "refusals": refusals, **more})


def run(folder: Path, task: type[SinkTask], end: int, **more: Any) -> BodyBench:
    config = {**TYPED, **more.pop("config", {})}
    bench = BodyBench(folder, task, config, kind=TaskKind.SINK, **more)
    bench.start().until(lambda: committed(folder).get(("t", 0)) == end or bench.ended)
    if bench.ended is None:
        bench.stop()
    return bench


def n_of(record: SinkRecord) -> int:
    return int(record.value["n"] if isinstance(record.value, dict) else record.value)


def test_batches_and_records_come_in_order(tmp_path: Path, log: EmbeddedTransport) -> None:
    fill(log, record(0), record(1), numbers(2, 40), numbers(40, 50), record(50))
    task = taking(refusals=2)
    bench = run(tmp_path, task, 51)
    assert [(n_of(one), one.offset) for _, one in task.taken] == [(n, n) for n in range(51)]
    kinds = [kind for kind, _ in task.taken]
    assert kinds == ["record"] * 2 + ["batch"] * 48 + ["record"]
    assert bench.progress.records == 51


@pytest.mark.parametrize(
    "way",
    [
        {"chain": [Keeps()]},
        {"task": {"takes_batches": lambda _self: False}},
        {"config": {"errors.log.enable": "true"}},
    ],
)
def test_who_needs_records_gets_the_same(
    tmp_path: Path, log: EmbeddedTransport, way: dict[str, Any]
) -> None:
    table = pa.table({name: column for name, column in every_type().items() if "nan" not in name})
    fill(log, batch_of(table), batch_of(table, key=None))
    by_batch = taking()
    run(tmp_path, by_batch, 4)
    by_record = taking(**way.get("task", {}))
    way = {key: given for key, given in way.items() if key != "task"}
    log.record_log.commit_unguarded("connect-c", {("t", 0): None})
    run(tmp_path, by_record, 4, **way)
    assert [kind for kind, _ in by_batch.taken] == ["batch"] * 4
    assert [kind for kind, _ in by_record.taken] == ["record"] * 4
    assert [one for _, one in by_batch.taken] == [one for _, one in by_record.taken]


def test_a_sink_goes_on_within_a_batch(tmp_path: Path, log: EmbeddedTransport) -> None:
    fill(log, numbers(0, 10), numbers(10, 20))
    log.record_log.commit_unguarded("connect-c", {("t", 0): 7})
    task = taking()
    run(tmp_path, task, 20)
    assert [(n_of(one), one.headers[1]) for _, one in task.taken] == [
        (n, ("at", n % 10)) for n in range(7, 20)
    ]


def test_what_is_wrong_with_a_batch_is_told_record_by_record(
    tmp_path: Path, log: EmbeddedTransport
) -> None:
    config = {"key.converter": "IntegerConverter", "errors.tolerance": "all"}
    fill(log, numbers(0, 3), numbers(3, 5, key=b"\0\0\0\1"))
    task = taking()
    bench = run(tmp_path, task, 5, config=config)
    assert [n_of(one) for _, one in task.taken] == [3, 4]
    assert bench.progress.skipped == 3
    assert "(t-0, offset 0)" in bench.progress.detail


def test_a_batch_of_a_partition_that_went_is_not_given(
    tmp_path: Path, log: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is revoked and comes back while `put_batch` waits to be tried again."""
    fill(log, numbers(0, 5))
    poll = EmbeddedConsumer.poll
    gone: list[bool] = []

    def polled(consumer: EmbeddedConsumer, limit: int, timeout_ms: int) -> Any:
        if task.refusals == 0 and not gone:
            gone.append(True)
            consumer._revoked([("t", 0), ("t", 1)])
            consumer._positions = {("t", 0): 0, ("t", 1): 0}
            consumer._assigned([("t", 0), ("t", 1)])
        return poll(consumer, limit, timeout_ms)

    monkeypatch.setattr(EmbeddedConsumer, "poll", polled)
    task = taking(refusals=1)
    run(tmp_path, task, 5)
    assert gone
    assert [n_of(one) for _, one in task.taken] == [*range(5)]


def test_after_a_rebalance_a_member_reads_from_what_is_committed(log: EmbeddedTransport) -> None:
    """The member had polled some rows of a batch, and had the others in memory."""
    fill(log, numbers(0, 10))
    first = log.record_log.consumer("g", ["t"], "a")
    while not (found := first.poll(3, 100)):
        pass
    assert [one.offset for one in found] == [0, 1, 2]
    second = log.record_log.consumer("g", ["t"], "b")
    while not second.assignment():
        first.poll(0, 10)
        second.poll(0, 10)
    second.close()
    while len(first.assignment()) < 2:
        first.poll(0, 10)
    assert first.poll(3, 100)[0].offset == 0
    first.close()


# -- DirectorySink --


def out(folder: Path) -> list[Any]:
    return [pq.read_table(path) for path in sorted((folder / "out").glob("*.parquet"))]


def write_out(folder: Path, end: int, **more: Any) -> BodyBench:
    config = {"path": str(folder / "out"), "name": "c", "rotate.interval.ms": "100"}
    return run(folder, DirectorySinkTask, end, config={**config, **more.pop("options", {})}, **more)


def test_files_are_equal_by_batch_and_record_by_record(
    tmp_path: Path, log: EmbeddedTransport
) -> None:
    fill(log, batch_of(pa.table(every_type())))
    write_out(tmp_path, 2)
    (by_batch,) = out(tmp_path)
    log.record_log.commit_unguarded("connect-c", {("t", 0): None})
    options = {"path": str(tmp_path / "other")}
    write_out(tmp_path, 2, chain=[Keeps()], options=options)
    (path,) = (tmp_path / "other").glob("*.parquet")
    by_record = pq.read_table(path)
    assert by_batch.schema.equals(by_record.schema, check_metadata=True)
    for name in by_batch.schema.names:
        same = by_batch[name].equals(by_record[name])
        assert same or str(by_batch[name]) == str(by_record[name]), name


def test_files_have_the_records_that_are_asked_for(tmp_path: Path, log: EmbeddedTransport) -> None:
    fill(log, numbers(0, 25), numbers(25, 29), numbers(29, 35))
    options = {"rotate.records": "10", "rotate.interval.ms": "500"}
    write_out(tmp_path, 35, options=options)
    tables = out(tmp_path)
    assert [table.num_rows for table in tables] == [10, 10, 10, 5]
    assert [n for table in tables for n in table["n"].to_pylist()] == [*range(35)]


def test_columns_that_come_and_go_are_those_of_the_folder(
    tmp_path: Path, log: EmbeddedTransport
) -> None:
    more = pa.table({"m": ["a", "b"], "n": [3, 4]})
    fill(log, numbers(0, 3), batch_of(more), numbers(5, 7))
    write_out(tmp_path, 7)
    found = pa.concat_tables(out(tmp_path), promote_options="default")
    assert found.select(["n", "m"]).to_pylist() == [
        *({"n": n, "m": None} for n in range(3)),
        {"n": 3, "m": "a"},
        {"n": 4, "m": "b"},
        *({"n": n, "m": None} for n in range(5, 7)),
    ]


def test_a_column_of_another_type_is_refused_by_name(
    tmp_path: Path, log: EmbeddedTransport
) -> None:
    fill(log, numbers(0, 3), batch_of(pa.table({"n": ["text"]})))
    ended = write_out(tmp_path, 4).ended
    assert ended is not None
    assert ended.outcome is TaskOutcome.FAILED
    assert "the batch at t-0 offset 3: column n is of type string, expected int64" in ended.reason


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_formats_of_lines_take_records(tmp_path: Path, log: EmbeddedTransport, format: str) -> None:
    fill(log, numbers(0, 3))
    write_out(tmp_path, 3, options={"format": format})
    (path,) = (tmp_path / "out").glob(f"*.{format}")
    assert len(path.read_text().splitlines()) == (4 if format == "csv" else 3)
