"""Batches are converted to JSON and Avro by columns, into the same records as one by one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data.every_type import every_type
from support.registry.memory import MemorySchemas, converter
from support.task.body_bench import BodyBench, source_offsets
from support.task.letters import headers_of, records_of
from support.task.transforms import CAST_TEXT, Keeps

from headgate.connector.batches import RowOffsets, SourceBatch
from headgate.connector.converters import task_converters
from headgate.connector.json_converter import JsonConverter
from headgate.connector.transforms import make_transforms
from headgate.ports import ConsumerRecord, ProducerRecord, TransactionOverError, ValueColumn
from headgate_arrow import arrow_types, rows
from headgate_connectors.directory import DirectoryTask
from headgate_embedded.producer import EmbeddedProducer
from headgate_registry.avro_converter import Working
from headgate_registry.base import FormatConverter
from headgate_runtime.tasks.source_batches import ReadyBatch, SourceBatches

PACKAGE = "org.apache.kafka.connect.transforms."
CHAIN = {
    "transforms": "cut,cast,hide",
    "transforms.cut.type": f"{PACKAGE}ReplaceField$Value",
    "transforms.cut.exclude": "text",
    "transforms.cut.renames": "n:number",
    "transforms.cast.type": f"{PACKAGE}Cast$Value",
    "transforms.cast.spec": "number:string,price:float32",
    "transforms.hide.type": f"{PACKAGE}MaskField$Value",
    "transforms.hide.fields": "customer",
    "transforms.hide.replacement": "***",
}


class Sent:
    """The batches and records that the task gave to its producer."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows_of_columns: list[int] = []
        send = EmbeddedProducer.send_values

        def values_sent(producer: EmbeddedProducer, column: ValueColumn) -> None:
            self.rows_of_columns.append(column.count)
            send(producer, column)

        patch.setattr(EmbeddedProducer, "send_values", values_sent)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(monkeypatch)


def write(folder: Path, count: int, bad: Sequence[int] = ()) -> Path:
    folder.mkdir()
    columns = {
        "n": range(count),
        "price": [n / 4 for n in range(count)],
        "customer": [f"c {n}" for n in range(count)],
        "text": ['x"\u00e9' if n in bad else str(n) for n in range(count)],
    }
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder


def run(
    folder: Path, source: Path, config: Mapping[str, str], *, by_record: bool = False, **more: Any
) -> BodyBench:
    config = {"path": str(source), "topic": "t", "value.converter": "JsonConverter", **config}
    chain = [*make_transforms(config), *([Keeps()] if by_record else [])]
    bench = BodyBench(folder, DirectoryTask, config, chain=chain, **more)
    bench.start().until(lambda: bench.progress.idle or bench.ended)
    if bench.ended is None:
        bench.stop()
    return bench


def plain(found: Sequence[ConsumerRecord]) -> list[Any]:
    return [(one.key, one.value, one.headers) for one in found]


@pytest.mark.parametrize(
    ("exactly_once", "chain", "schemas"),
    [(True, {}, "true"), (True, CHAIN, "false"), (False, CHAIN, "true")],
)
def test_a_column_of_json_is_the_records_one_by_one(
    tmp_path: Path, sent: Sent, exactly_once: bool, chain: dict[str, str], schemas: str
) -> None:
    source = write(tmp_path / "in", 150)
    config = {**chain, "value.converter.schemas.enable": schemas, "batch.size": "100"}
    by_column = run(tmp_path / "1", source, config, exactly_once=exactly_once)
    assert sent.rows_of_columns == [100, 50]
    by_record = run(tmp_path / "2", source, config, by_record=True, exactly_once=exactly_once)
    assert len(sent.rows_of_columns) == 2
    found, expected = (records_of(tmp_path / way, "t") for way in ("1", "2"))
    assert plain(found) == plain(expected)
    assert len(found) == 150
    assert [dict(one.headers)["headgate.position"] for one in found[99:101]] == [b"99", b"100"]
    assert source_offsets(tmp_path / "1") == source_offsets(tmp_path / "2")
    assert by_column.progress.records == by_record.progress.records == 150


def test_a_poll_gives_no_more_rows_than_records(tmp_path: Path, sent: Sent) -> None:
    """The limit is not the 65,536 rows of a log that keeps batches."""
    run(tmp_path / "1", write(tmp_path / "in", 2100), {})
    assert sent.rows_of_columns == [2000, 100]


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_every_type_of_parquet_is_the_same_by_column(
    tmp_path: Path, sent: Sent, decimals: str
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table(every_type()), source / "a.parquet")
    config = {"value.converter.decimal.format": decimals}
    run(tmp_path / "1", source, config)
    run(tmp_path / "2", source, config, by_record=True)
    found, expected = (records_of(tmp_path / way, "t") for way in ("1", "2"))
    assert plain(found) == plain(expected)
    assert (len(found), sent.rows_of_columns) == (2, [2])


def test_a_null_list_of_a_fixed_size_is_a_null_either_way(tmp_path: Path, sent: Sent) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pair = pa.list_(pa.field("item", pa.int32(), nullable=False), 2)
    columns = {"v": pa.array([[1, 2], None], pair), "t": pa.array([1, 2], pa.timestamp("us"))}
    pq.write_table(pa.table(columns), source / "a.parquet")
    run(tmp_path / "1", source, {})
    run(tmp_path / "2", source, {}, by_record=True)
    found, expected = (records_of(tmp_path / way, "t") for way in ("1", "2"))
    assert plain(found) == plain(expected)
    values = [json.loads(one.value or b"")["payload"]["v"] for one in expected]
    assert (values, sent.rows_of_columns) == ([[1, 2], None], [2])


def test_a_row_that_a_transform_refuses_is_a_dead_letter_alone(tmp_path: Path, sent: Sent) -> None:
    source = write(tmp_path / "in", 1100, bad=(20, 999))
    by_column = run(tmp_path / "1", source, CAST_TEXT)
    assert sent.rows_of_columns == [100]
    by_record = run(tmp_path / "2", source, CAST_TEXT, by_record=True)
    for topic, count in (("t", 1098), ("letters", 2)):
        found, expected = (records_of(tmp_path / way, topic) for way in ("1", "2"))
        assert [one.value for one in found] == [one.value for one in expected]
        assert len(found) == count
    letters = [headers_of(one) for one in records_of(tmp_path / "1", "letters")]
    assert letters == [headers_of(one) for one in records_of(tmp_path / "2", "letters")]
    assert by_column.progress.skipped == by_record.progress.skipped == 2
    assert source_offsets(tmp_path / "1") == source_offsets(tmp_path / "2")


def test_what_has_no_form_in_json_is_said_record_by_record(
    tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that cannot be had by columns goes through the converter one by one."""

    def refuse(*_given: object) -> Any:
        raise pa.ArrowNotImplementedError("no kernel")

    monkeypatch.setattr("headgate_arrow.json_columns.JsonColumns.values", refuse)
    found = run(tmp_path / "1", write(tmp_path / "in", 10), {})
    assert (found.progress.records, found.progress.skipped) == (10, 0)
    assert [json.loads(one.value or b"")["payload"]["n"] for one in records_of(tmp_path / "1", "t")]
    assert not sent.rows_of_columns


def test_a_converter_of_somebody_else_gets_each_record(
    tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(JsonConverter):
        def from_connect(self, topic: str, value: Any, schema: Any = None) -> bytes | None:
            return b"own"

    made = Own()
    monkeypatch.setattr("support.task.body_bench.task_converters", converters_with(made))
    run(tmp_path / "1", write(tmp_path / "in", 10), {})
    assert [one.value for one in records_of(tmp_path / "1", "t")] == [b"own"] * 10
    assert not sent.rows_of_columns


def avro(patch: pytest.MonkeyPatch, schemas: MemorySchemas, made: Any = None) -> FormatConverter:
    """Values of tasks that begin from now on are written by it."""
    made = converter("AvroConverter", schemas) if made is None else made
    patch.setattr("support.task.body_bench.task_converters", converters_with(made))
    return made


@pytest.mark.parametrize("chain", [{}, CHAIN])
def test_a_column_of_avro_is_the_records_one_by_one(
    tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch, chain: dict[str, str]
) -> None:
    source, schemas = write(tmp_path / "in", 150), MemorySchemas()
    avro(monkeypatch, schemas)
    by_column = run(tmp_path / "1", source, {**chain, "batch.size": "100"})
    assert sent.rows_of_columns == [100, 50]
    made = avro(monkeypatch, schemas)
    run(tmp_path / "2", source, chain, by_record=True)
    found, expected = (records_of(tmp_path / way, "t") for way in ("1", "2"))
    assert plain(found) == plain(expected)
    assert (len(found), len(schemas.schemas), by_column.progress.records) == (150, 1, 150)
    read = made.to_connect_data("t", found[149].value).value
    assert read["number" if chain else "n"] == ("149" if chain else 149)
    assert source_offsets(tmp_path / "1") == source_offsets(tmp_path / "2")


def test_every_type_of_parquet_is_the_same_in_avro(
    tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table(every_type()), source / "a.parquet")
    for way in ("1", "2"):
        avro(monkeypatch, MemorySchemas())
        run(tmp_path / way, source, {}, by_record=way == "2")
    found, expected = (records_of(tmp_path / way, "t") for way in ("1", "2"))
    assert plain(found) == plain(expected)
    assert (len(found), sent.rows_of_columns) == (2, [2])


def test_each_topic_has_its_own_subject() -> None:
    """One schema in two topics is registered for each of them."""
    schemas = MemorySchemas()
    made = converter("AvroConverter", schemas)
    batches = SourceBatches(replace(task_converters({}, {}), value=made))
    batches.decide(None, needs_records=False)
    values = rows.record_batch(pa.table({"n": [1]}))
    schema = arrow_types.struct_schema(values.schema)
    offsets = RowOffsets({"position": range(1)})
    given = [SourceBatch({}, offsets, topic, values, schema) for topic in ("a", "b", "a")]
    for ready in batches.prepared(given):
        assert isinstance(ready, ReadyBatch)
        assert isinstance(ready.sent, ValueColumn)
    assert list(schemas.subjects) == ["a-value", "b-value"]


def test_a_converter_derived_from_avro_gets_each_record(
    tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(Working):
        def from_connect(self, topic: str, value: Any, schema: Any = None) -> bytes | None:
            return b"own"

    made = Own(lambda: MemorySchemas())
    made.configure({}, is_key=False)
    avro(monkeypatch, MemorySchemas(), made)
    run(tmp_path / "1", write(tmp_path / "in", 10), {})
    assert [one.value for one in records_of(tmp_path / "1", "t")] == [b"own"] * 10
    assert not sent.rows_of_columns


def converters_with(value: Any) -> Any:
    return lambda *given: replace(task_converters(*given), value=value)


def test_a_row_that_the_log_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = EmbeddedProducer.send

    def refuse(producer: EmbeddedProducer, records: Sequence[ProducerRecord]) -> None:
        if len(records) > 7:
            error = TransactionOverError("too large")
            error.place = 7
            raise error
        send(producer, records)

    monkeypatch.setattr(EmbeddedProducer, "send", refuse)
    ended = run(tmp_path / "1", write(tmp_path / "in", 10), {}).ended
    assert ended is not None
    assert "too large (source partition {'file': 'a.parquet'}, offset {'position': 8," in (
        ended.reason
    )


def test_where_the_log_names_no_row_the_largest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_given: object) -> None:
        raise TransactionOverError("too large")

    monkeypatch.setattr(EmbeddedProducer, "commit", refuse)
    source = write(tmp_path / "in", 10, bad=(6,))
    ended = run(tmp_path / "1", source, {"value.converter.schemas.enable": "false"}).ended
    assert ended is not None
    assert "The largest record of the last batch has 60 bytes" in ended.reason
    assert "goes to t (source partition {'file': 'a.parquet'}, offset {'position': 7," in (
        ended.reason
    )
