"""Batches of Arrow rows go from `poll` to the log: whole where they may, and otherwise as the same
records."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data.every_type import every_type
from support.task.body_bench import BodyBench, source_offsets
from support.task.scripted_source import KEY, record
from support.task.transforms import Keeps

from headgate.connector.api import (
    OffsetUpdate,
    RecordMetadata,
    SkippedRecord,
    SourceRecord,
    SourceTask,
)
from headgate.connector.batches import RowNumbers, RowOffsets, SourceBatch
from headgate.connector.text_converters import TypedConverter
from headgate.ports import Ack, ConsumerRecord, LogBatch, ProducerRecord, TransactionOverError
from headgate.task.messages import TaskOutcome
from headgate_arrow import arrow_types, rows
from headgate_connectors.directory import DirectoryTask
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.batches import is_batch
from headgate_embedded.producer import EmbeddedProducer

TYPED = {"value.converter": "TypedConverter"}


def batch(start: int, end: int, **more: Any) -> SourceBatch:
    """Rows `start` to `end`, numbered as the records of `record` are."""
    table = pa.table({"n": range(start, end)})
    wanted = range(start, end)
    return SourceBatch(
        *({"file": "a"}, RowOffsets({"n": wanted}), "t", rows.record_batch(table)),
        arrow_types.struct_schema(table.schema),
        headers=(("file", "a"), ("at", RowNumbers(wanted))),
        **more,
    )


class Given(SourceTask):
    polls: Sequence[Any]
    flows: bool

    def start(self, config: Mapping[str, str]) -> None:
        type(self).flows = self.context.takes_batches
        self._left = list(self.polls)

    def poll(self) -> Iterable[Any] | None:
        if self._left:
            return self._left.pop(0)  # type: ignore[no-any-return]
        self.context.wait(0.02)
        return None


def given(*polls: Any) -> type[Given]:
    return type("Polls", (Given,), {"polls": polls})


def run(folder: Path, task: type[SourceTask], **more: Any) -> BodyBench:
    bench = BodyBench(folder, task, more.pop("config", TYPED), **more)
    bench.start().until(lambda: bench.progress.idle or bench.ended)
    if bench.ended is None:
        bench.stop()
    return bench


def in_the_log(folder: Path) -> tuple[list[ConsumerRecord], int]:
    """All records of topic t, and how many batches of Arrow there are."""
    with closing(open_transport(transport_settings(folder))) as transport:
        end = transport.record_log.end_offsets(["t"])["t", 0]
        found = list(transport.record_log.read("t", 0, 0, end, 1 << 30))
        with transport._database.read() as connection:
            blobs = [data for (data,) in connection.execute("select data from batches")]
    return found, sum(map(is_batch, blobs))


def n_of(record: ConsumerRecord) -> int:
    value = TypedConverter().to_connect("t", record.value)
    return int(value["n"] if isinstance(value, dict) else value)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_batches_records_and_offsets_keep_their_order(tmp_path: Path, exactly_once: bool) -> None:
    update = OffsetUpdate({"file": "b"}, {"n": 77})
    polls = [[record(1), batch(2, 50), update, batch(50, 60), record(60)], [batch(61, 70)]]
    task = given(*polls)
    bench = run(tmp_path, task, exactly_once=exactly_once)
    assert task.flows
    found, batches = in_the_log(tmp_path)
    assert [n_of(one) for one in found] == [*range(1, 70)]
    assert batches == 3
    assert found[5].headers == (("file", b"a"), ("at", b"6"))
    assert bench.progress.records == 69
    assert source_offsets(tmp_path) == {KEY: b'{"n":69}', b'["c",{"file":"b"}]': b'{"n":77}'}


def test_a_batch_without_rows_is_nothing(tmp_path: Path) -> None:
    bench = run(tmp_path, given([batch(1, 1), batch(1, 3)]))
    found, batches = in_the_log(tmp_path)
    assert ([n_of(one) for one in found], batches, bench.progress.records) == ([1, 2], 1, 2)


@pytest.mark.parametrize("time_ms", [None, -1, 0, 5])
def test_a_batch_and_its_records_have_one_timestamp(tmp_path: Path, time_ms: int | None) -> None:
    run(tmp_path, given([batch(1, 3, timestamp_ms=time_ms)]))
    found, _ = in_the_log(tmp_path)
    expected = found[0].timestamp_ms > 10**12 if time_ms in (None, -1) else time_ms
    assert [one.timestamp_ms > 10**12 or one.timestamp_ms for one in found] == [expected] * 2


def test_a_batch_of_a_time_that_there_is_not_fails_its_task(tmp_path: Path) -> None:
    bench = run(tmp_path, given([batch(1, 3, timestamp_ms=-2)]))
    assert bench.ended is not None
    assert "timestamp -2 of a record, expected milliseconds from 0 on" in str(bench.ended)


class Ends(Given):
    """Ends its transactions itself."""

    def poll(self) -> Iterable[Any] | None:
        assert self.context.transaction is not None
        items = super().poll()
        if items:
            self.context.transaction.commit_transaction()
        return items


class Told(Given):
    told: list[Any]

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self.told.append((record.value, metadata.offset if metadata else None))


def test_what_needs_records_gets_the_same_records(tmp_path: Path) -> None:
    polls = [[batch(1, 4, key="k", timestamp_ms=-1, partition=0), record(4)]]
    expected = None
    told: list[Any] = []
    ends = type("Ends", (Ends,), {"polls": polls})
    tells = type("Tells", (Told,), {"polls": polls, "told": told})
    by_connector = {"config": {**TYPED, "transaction.boundary": "connector"}}
    ways: list[tuple[type[Given], dict[str, Any]]] = [
        (given(*polls), {}),
        (given(*polls), {"chain": [Keeps()]}),
        (ends, by_connector),
        (tells, {}),
    ]
    for number, (task, way) in enumerate(ways):
        folder = tmp_path / str(number)
        run(folder, task, **way)
        found, batches = in_the_log(folder)
        plain = [(one.key, one.value, one.headers) for one in found]
        expected = expected or plain
        assert plain == expected
        assert [one.key for one in found] == [b"k"] * 3 + [None]
        assert (task.flows, batches) == ((True, 1) if number == 0 else (False, 0))
    assert told == [({"n": n}, n - 1) for n in (1, 2, 3)] + [("4", 3)]


@pytest.mark.parametrize(("name", "flows"), [("JsonConverter", True), ("StringConverter", False)])
def test_another_converter_gives_records(tmp_path: Path, name: str, flows: bool) -> None:
    task = given([batch(1, 4)])
    run(tmp_path, task, config={"value.converter": name})
    found, batches = in_the_log(tmp_path)
    assert (len(found), batches, task.flows) == (3, 0, flows)
    assert all(b'"n"' in (one.value or b"") for one in found)


def test_a_bad_value_costs_its_row(tmp_path: Path) -> None:
    times = pa.array([0, 25 * 3_600_000, 1], pa.int32()).view(pa.time32("ms"))
    table = pa.table({"n": [1, 2, 3], "at": times})
    bad = batch(1, 4)
    bad.values, bad.value_schema = rows.record_batch(table), arrow_types.struct_schema(table.schema)
    bench = run(tmp_path, given([bad]), config={**TYPED, "errors.tolerance": "all"})
    found, _ = in_the_log(tmp_path)
    assert [n_of(one) for one in found] == [1, 3]
    assert bench.progress.skipped == 1
    assert "column at of type time32[ms]" in bench.progress.detail
    assert "(source partition {'file': 'a'}, offset {'n': 2})" in bench.progress.detail
    ended = run(tmp_path / "other", given([bad])).ended
    assert ended is not None
    assert ended.outcome is TaskOutcome.FAILED
    assert "90000000 is not within the acceptable range" in ended.reason


def test_a_batch_that_is_none_fails_the_task_by_name(tmp_path: Path) -> None:
    wrong = batch(1, 4)
    wrong.values = rows.record_batch(pa.table({"m": [1, 2, 3]}))
    ended = run(tmp_path, given([wrong]), config={**TYPED, "errors.tolerance": "all"}).ended
    assert ended is not None
    assert "a SourceBatch has the columns m int64; its value schema says n int64" in ended.reason


# -- what the log refuses --


@pytest.mark.parametrize("refused", [0, 1, 7, 8, 9, 12])
def test_a_record_that_is_refused_in_its_transaction_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Rows are numbered through records and batches: 1 | 2 to 8 | 9, 10 | 11 to 13."""
    send, send_batch = EmbeddedProducer.send, EmbeddedProducer.send_batch
    calls: list[int] = []

    def check(count: int) -> None:
        before = sum(calls)
        calls.append(count)
        if before <= refused < before + count:
            error = TransactionOverError("too large")
            error.place = refused - before
            raise error

    def sent(self: EmbeddedProducer, records: Sequence[ProducerRecord]) -> None:
        check(len(records))
        send(self, records)

    def batch_sent(self: EmbeddedProducer, one: LogBatch) -> None:
        check(one.count)
        send_batch(self, one)

    monkeypatch.setattr(EmbeddedProducer, "send", sent)
    monkeypatch.setattr(EmbeddedProducer, "send_batch", batch_sent)
    polls = [record(1), batch(2, 9), record(9), record(10), batch(11, 14)]
    ended = run(tmp_path, given(polls)).ended
    assert ended is not None
    assert f"(source partition {{'file': 'a'}}, offset {{'n': {refused + 1}}})" in ended.reason


@pytest.mark.parametrize("refused", [0, 1, 7, 8, 12])
def test_a_record_that_is_refused_without_a_transaction_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    acks = EmbeddedProducer.acks

    def refusing(self: EmbeddedProducer) -> Sequence[Ack]:
        found = [Ack(ack.first, ack.last) for ack in acks(self)]
        return (
            [*found, Ack(13 + refused, 13 + refused, "no")] if found and found[0].first else found
        )

    monkeypatch.setattr(EmbeddedProducer, "acks", refusing)
    first = [record(1), batch(2, 9), record(9), record(10), batch(11, 14)]
    second = [record(14), batch(15, 22), record(22), record(23), batch(24, 27)]
    ended = run(tmp_path, given(first, second), exactly_once=False).ended
    assert ended is not None
    assert f"no (source partition {{'file': 'a'}}, offset {{'n': {refused + 14}}})" in ended.reason


def test_offsets_of_a_batch_that_is_acknowledged_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedProducer, "acks", lambda _self: [Ack(0, 3)])
    bench = BodyBench(tmp_path, given([record(1), batch(2, 9)]), TYPED, exactly_once=False)
    bench.start().until(lambda: source_offsets(tmp_path))
    bench.stop()
    assert source_offsets(tmp_path) == {KEY: b'{"n":4}'}


# -- DirectorySource --


def a_folder(folder: Path) -> Path:
    folder.mkdir()
    pq.write_table(pa.table(every_type()), folder / "a.parquet")
    table = pa.table({"n": range(3000), "text": ["x"] * 3000})
    pq.write_table(table, folder / "b.parquet", row_group_size=1100)
    (folder / "c.jsonl").write_text("".join([f'{{"n":{n}}}\n' for n in range(2500)]))
    bad = pa.array([0, 25 * 3_600_000, 1] * 2, pa.int32()).view(pa.time32("ms"))
    pq.write_table(pa.table({"at": bad}), folder / "d.parquet", row_group_size=4)
    return folder


def directory(folder: Path, **more: str) -> dict[str, str]:
    return {"path": str(folder), "topic": "t", "errors.tolerance": "all", **TYPED, **more}


def by_file(found: Sequence[ConsumerRecord]) -> dict[Any, list[Any]]:
    files: dict[Any, list[Any]] = {}
    for one in found:
        files.setdefault(one.key, []).append((one.value, one.headers))
    return files


def test_files_give_the_same_records_by_batch_and_one_by_one(tmp_path: Path) -> None:
    source = a_folder(tmp_path / "in")
    by_batch = run(tmp_path / "1", DirectoryTask, config=directory(source))
    one_by_one = run(tmp_path / "2", DirectoryTask, config=directory(source), chain=[Keeps()])
    found, batches = in_the_log(tmp_path / "1")
    expected, none = in_the_log(tmp_path / "2")
    assert by_file(found) == by_file(expected)
    assert (batches, none) == (1 + 3, 0)
    assert by_batch.progress.skipped == one_by_one.progress.skipped == 2
    assert source_offsets(tmp_path / "1") == source_offsets(tmp_path / "2")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_typed_texts_are_the_same_in_the_log_by_batch_and_one_by_one(
    tmp_path: Path, kind: str
) -> None:
    source, types = tmp_path / "in", "n: int64, price: decimal(10,2), at: timestamp, text: string"
    source.mkdir()
    at, numbers = "2026-11-26T07:05:09.123Z", range(1, 2001)
    if kind == "csv":
        lines = ["n,price,at,text\n", *[f"{n},{n}.50,{at},text {n}\n" for n in numbers]]
    else:
        lines = [f'{{"n":{n},"price":{n}.5,"at":"{at}","text":"é{n}"}}\n' for n in numbers]
    (source / f"a.{kind}").write_text("".join(lines), encoding="utf-8")
    config = directory(source, **{"csv.types": types, "json.types": types})
    run(tmp_path / "1", DirectoryTask, config=config)
    run(tmp_path / "2", DirectoryTask, config=config, chain=[Keeps()])
    found, batches = in_the_log(tmp_path / "1")
    expected, none = in_the_log(tmp_path / "2")
    assert by_file(found) == by_file(expected)
    assert (len(found), batches, none) == (2000, 1, 0)
    assert source_offsets(tmp_path / "1") == source_offsets(tmp_path / "2")


@pytest.mark.parametrize("size", [7, 2000])
def test_batch_size_limits_the_rows_of_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    polls: list[int] = []
    poll = DirectoryTask.poll

    def counted(self: DirectoryTask) -> Any:
        items = poll(self)
        polls.append(sum(one.count if isinstance(one, SourceBatch) else 1 for one in items or ()))
        return items

    monkeypatch.setattr(DirectoryTask, "poll", counted)
    source = tmp_path / "in"
    source.mkdir()
    table = pa.table({"n": range(5 * size)})
    pq.write_table(table, source / "b.parquet", row_group_size=2 * size + 1)
    run(tmp_path / "s", DirectoryTask, config=directory(source, **{"batch.size": str(size)}))
    assert max(polls) == size
    assert len(in_the_log(tmp_path / "s")[0]) == 5 * size


def test_a_source_goes_on_within_a_batch(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"n": range(100)}), source / "b.parquet")
    config = directory(source, **{"batch.size": "30"})
    bench = BodyBench(tmp_path / "s", DirectoryTask, config)
    bench.start().until(lambda: bench.progress.records)
    bench.stop()
    reached = bench.progress.records
    assert reached % 30 == 0 or reached == 100
    run(tmp_path / "s", DirectoryTask, config=directory(source, **{"batch.size": "7"}))
    assert [n_of(one) for one in in_the_log(tmp_path / "s")[0]] == [*range(100)]


def test_large_rows_are_in_batches_below_the_limit(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    table = pa.table({"n": range(60), "text": ["x" * 1_000_000] * 60})
    pq.write_table(table, source / "b.parquet", compression="zstd")
    run(tmp_path / "s", DirectoryTask, config=directory(source))
    transport = open_transport(transport_settings(tmp_path / "s"))
    with closing(transport), transport._database.read() as connection:
        sizes = [n for (n,) in connection.execute("select length(data) from batches")]
    assert len(sizes) >= 4
    assert max(sizes) < 17_000_000
    found, _ = in_the_log(tmp_path / "s")
    assert [n_of(one) for one in found] == [*range(60)]


def test_a_skipped_record_beside_batches_keeps_its_place(tmp_path: Path) -> None:
    skipped = SkippedRecord({"file": "a"}, {"n": 9}, "bad at 9")
    polls = [[batch(1, 9), skipped, batch(10, 12)]]
    bench = run(tmp_path, given(*polls), config={**TYPED, "errors.tolerance": "all"})
    assert bench.progress.skipped == 1
    assert source_offsets(tmp_path) == {KEY: b'{"n":11}'}
    last = [[batch(1, 9), skipped]]
    run(tmp_path / "last", given(*last), config={**TYPED, "errors.tolerance": "all"})
    assert source_offsets(tmp_path / "last") == {KEY: b'{"n":9}'}


def test_words_of_a_dictionary_are_in_the_log_once_for_each_batch_that_has_them(
    tmp_path: Path,
) -> None:
    words = pa.array([f"{number}" + "x" * 100_000 for number in range(400)]).dictionary_encode()
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(pa.table({"word": words}), folder / "a.parquet")
    config = {**TYPED, "path": str(folder), "topic": "t", "file.settle.ms": "0"}
    run(tmp_path / "log", DirectoryTask, config=config)
    found, batches = in_the_log(tmp_path / "log")
    assert (len(found), batches) == (400, 3)
    stored = sum(path.stat().st_size for path in (tmp_path / "log").rglob("*") if path.is_file())
    assert stored < 2 * words.nbytes
