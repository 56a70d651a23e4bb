"""A slice of SparkFileSink that is read by columns gives what it gives when read record by
record."""

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from support.spark.record_columns import Columns

from headgate.connector import schema as s
from headgate.connector.json_converter import JsonConverter
from headgate.connector.text_converters import TypedConverter
from headgate.log.record_columns import ColumnLog, RecordColumns
from headgate.ports import ConsumerRecord, Headers, LogBatch, ProducerRecord, RecordLog
from headgate_arrow import arrow_types
from headgate_arrow.rows import schema_bytes, to_bytes
from headgate_embedded import open_transport
from headgate_spark import arrow_chunks
from headgate_spark.slices import SliceResult, SliceTask, run_slice

ROUNDS, ROWS = 200, 12
METADATA = ("key", "offset", "timestamp", "topic", "partition")

WHOLE = ["0", "-0", "1", "-7", "9007199254740991", "9007199254740992", "9007199254740993",
         "-9007199254740993", "9223372036854775807", "-9223372036854775808",
         "9223372036854775808", "18446744073709551616",
         "123456789012345678901234567890"]  # fmt: skip
BROKEN_NUMBERS = ["01", "+1", "1.", ".5", "NaN", "Infinity", "-", "1e400", "0x1", "1_0"]
FRACTIONS = ["0.5", "-0.0", "1.0", "1e5", "1E-7", "2.5e-400", "1.7976931348623157e308", "1e22",
             "9007199254740993.0", "0.1", "3.141592653589793238462643"]  # fmt: skip
TEXTS = ['""', '"a"', '"2020-01-01"', '"2020-01-01T00:00:00Z"', '"2020-01-01 00:00:00"',
         '"12:00:00"', '"1"', '"\\u00e9"', '"é"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00"',
         '"\\u0000"', '"a\\nb"', '"}\\"{"', '"NaN"', '"null"']  # fmt: skip
OTHERS = ["null", "true", "false", "{}", "[]", '{"b":1}', '[1,"x"]', '{"b":{"c":[null]}}']
NAMES = ["a", "b", "é", "", "a.b", "_offset", "__key", "value", "\\u0061", "a b"]
BARE = [b"", b"text", b" x", b"[1]", b'"a"', b"1", b"null", b"{", b"}", b"{}", b" {}", b"{} ",
        b'{"a":1}{"a":2}', b'{"a":1}\n{"a":2}', b'{"a":1,}', b'{"a":1,"a":2}', b'{"a":1}\0',
        b'{"a":1}{"b":2}\0}', b'{"a":"\xff"}', b"\xff\xfe", b'{"a":\n1}', b"\xef\xbb\xbf{}",
        b'{"a":"\xed\xa0\x80"}', b"\xc3\xa9", b'{"a":/**/1}', b"{'a':1}",
        b'\x0b{"a":1}']  # fmt: skip
SHIFTED = [
    [b'{"a":1}{"a":2}\0}', b'{"a":3}'],
    [b'{"a":1}{"a":2}', b'{"a":', b"{}}"],
    [b'{"a":1}{"a":2}', b" "],
    [b'{"a":1}\n{"a":2}', b""],
]
"""As many objects as values, but not one in each."""


class MemoryLog:
    """Reads of one topic-partition, record by record."""

    def __init__(self, records: Sequence[ConsumerRecord]) -> None:
        self._records = records

    def end_offsets(self, topics: Sequence[str]) -> Mapping[tuple[str, int], int]:
        return {(topic, 0): 10**6 for topic in topics}

    def read(self, _topic: str, _part: int, start: int, end: int, limit: int) -> Any:
        return [one for one in self._records if start <= one.offset < end][:limit]


class ColumnsLog(MemoryLog):
    def read_columns(self, *place: Any) -> RecordColumns | LogBatch:
        return Columns(self.read(*place))


def records(values: Sequence[bytes | None], headers: Headers = ()) -> list[ConsumerRecord]:
    keys = [b"k", None, b"\xff", "é".encode()]
    return [
        ConsumerRecord("t", 0, n * 3, keys[n % 7] if n % 7 < 4 else b"k", one, headers, 1000 + n)
        for n, one in enumerate(values)
    ]


def run(log: object, folder: Path, **more: Any) -> tuple[SliceResult, list[str]]:
    given: dict[str, Any] = {"metadata": (), "columns": {}, "tolerate": False, "envelope": False}
    task = SliceTask("t", 0, 0, 10**6, str(folder), 0, 0, "parquet", **{**given, **more})
    result = run_slice(log, task)  # type: ignore[arg-type]
    rows: list[str] = []
    if result.staged:
        table = pyarrow.parquet.read_table(folder / result.staged)
        table = table.select(sorted(table.column_names))
        # As text: NaN and -0.0 are told apart, 1 and 1.0 and True as well.
        rows = [str(table.schema), *map(repr, table.to_pylist())]
    return result, rows


def check(given: Sequence[ConsumerRecord], folder: Path, **more: Any) -> None:
    (by_record, expected), (by_column, found) = (
        run(kind(given), folder, **more) for kind in (MemoryLog, ColumnsLog)
    )
    assert found == expected, given
    assert by_column.columns == by_record.columns, given
    told = [(one.records, one.skipped, one.detail, one.failed) for one in (by_record, by_column)]
    assert told[0] == told[1]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return, for each part, whether it was read by columns."""
    seen: list[bool] = []
    chunk = arrow_chunks.ArrowParser.chunk

    def look(self: Any, *args: Any) -> Any:
        found = chunk(self, *args)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(arrow_chunks.ArrowParser, "chunk", look)
    return seen


def object_text(random: random.Random, names: Sequence[str], pools: Mapping[str, list[str]]) -> str:
    fields = [f'"{name}":{random.choice(pools[name])}' for name in names if random.random() < 0.8]
    return "{" + ",".join(fields) + "}"


def some_values(random: random.Random) -> list[bytes | None]:
    """Objects whose fields are mostly of one kind each, and now and then something else."""
    kinds = [WHOLE, FRACTIONS, TEXTS, OTHERS[:3], WHOLE + FRACTIONS, WHOLE[:5], FRACTIONS[:1]]
    names = random.sample(NAMES, random.randint(1, 4))
    pools = {name: list(random.choice(kinds)) for name in names}
    for pool in pools.values():
        if random.random() < 0.3:
            pool.append("null")
        if random.random() < 0.08:
            pool.append(random.choice(OTHERS + BROKEN_NUMBERS + TEXTS))
    values: list[bytes | None] = [
        object_text(random, names, pools).encode() for _ in range(random.randint(1, ROWS))
    ]
    if random.random() < 0.3:
        values[random.randrange(len(values))] = None
    if random.random() < 0.3:
        values[random.randrange(len(values))] = random.choice(BARE)
    if random.random() < 0.1:
        values = [random.choice(BARE) for _ in values]
    return values


@pytest.mark.parametrize("seed", range(4))
def test_json_of_all_kinds(seed: int, tmp_path: Path, taken: list[bool]) -> None:
    some = random.Random(seed)
    for _ in range(ROUNDS):
        known = some.choice([{}, {"a": "string", "z": "long"}, {"b": "integer", "_offset": "long"}])
        metadata = some.choice([(), METADATA, ("offset",)])
        values = some_values(some)
        tolerate = some.random() < 0.7
        check(records(values), tmp_path, columns=known, metadata=metadata, tolerate=tolerate)
    assert 0.1 < sum(taken) / len(taken) < 0.9, "both ways are to be met"


@pytest.mark.parametrize("value", BARE)
def test_each_odd_value_among_others(value: bytes, tmp_path: Path) -> None:
    for values in ([value], [b'{"a":1}', value], [value, b'{"a":1}'], [b"x", value, None]):
        check(records(values), tmp_path, tolerate=True)


@pytest.mark.parametrize("values", SHIFTED)
def test_objects_that_are_not_one_in_each_value(values: list[bytes], tmp_path: Path) -> None:
    check(records(values), tmp_path, tolerate=True)


def test_payloads_that_are_not_one_object_each(tmp_path: Path) -> None:
    begins = JsonConverter().from_connect("t", {"n": 1}, s.struct({"n": s.INT64})) or b""
    begins = begins[: begins.index(b',"payload":') + 11]
    for payloads in ([b'{"n":1', b'}{"n":2}'], [b'{"n":1}{"n":2}', b" "], [b'{"n":1}{"n":2}', b""]):
        given = records([begins + one + b"}" for one in payloads])
        check(given, tmp_path, envelope=True, tolerate=True)


def test_a_record_that_the_client_cannot_read(tmp_path: Path) -> None:
    given = records([b'{"a":1}', b'{"a":2}'])
    given[1].unreadable = "the name of a header is not UTF-8"
    check(given, tmp_path)
    check(given, tmp_path, tolerate=True)


def test_plain_objects_texts_and_tombstones_go_by_columns(
    tmp_path: Path, taken: list[bool]
) -> None:
    for values in (
        [b'{"a":1,"b":"2020-01-01","c":1.5,"d":true,"e":null}', None, b'{"f":9007199254740993}'],
        [b"text", b"", None, b"[1]"],
        [None, None],
    ):
        check(records(values), tmp_path, metadata=METADATA[1:])
        assert taken == [True]
        taken.clear()


SCHEMA = s.struct(
    {
        "n": s.INT32,
        "big": s.INT64.as_optional(),
        "tiny": s.INT8.as_optional(),
        "x": s.FLOAT64.as_optional(),
        "ok": s.BOOLEAN.as_optional(),
        "text": s.STRING.as_optional(),
    }
)
ODD = s.struct({"n": s.INT32, "price": s.decimal_of(2), "day": s.DATE_SCHEMA, "f": s.FLOAT32})

DAYS = s.struct({"n": s.INT32, "day": s.DATE_SCHEMA, "at": s.TIMESTAMP_SCHEMA})
NESTED = s.struct(
    {
        "n": s.INT32,
        "data": s.BYTES.as_optional(),
        "list": s.array(s.decimal_of(2, 10).as_optional()).as_optional(),
        "map": s.map_of(s.STRING, s.INT64),
        "inner": s.struct({"a": s.FLOAT32, "day": s.DATE_SCHEMA.as_optional()}).as_optional(),
        "x": s.FLOAT64.as_optional(),
    }
)
CLOCK = s.struct({"n": s.INT32, "clock": s.TIME_SCHEMA, "long": s.decimal_of(3, 50)})


def struct_value(random: random.Random) -> dict[str, Any]:
    return {
        "n": random.randint(-(2**31), 2**31 - 1),
        "big": random.choice([None, 0, 2**53, 2**53 + 1, -(2**63)]),
        "tiny": random.choice([None, -128, 127]),
        "x": random.choice([None, 0.5, -0.0, 1.0, 1e15]),
        "ok": random.choice([None, True, False]),
        "text": random.choice([None, "", "é", "2020-01-01", '"}\n{', "a"]),
    }


def odd_value(random: random.Random) -> dict[str, Any]:
    return {"n": 1, "price": Decimal("1.5"), "day": date(2024, 2, 29), "f": random.random()}


def days_value(random: random.Random) -> dict[str, Any]:
    return {"n": 1, "day": date(2024, 2, 29), "at": datetime(2024, 2, 29, tzinfo=UTC)}


def nested_value(random: random.Random) -> dict[str, Any]:
    return {
        "n": 1,
        "data": random.choice([None, b"", b"\xff\0"]),
        "list": random.choice([None, [], [Decimal("1.50"), None]]),
        "map": random.choice([{}, {"a": 1, "é": -(2**63)}]),
        "inner": random.choice([None, {"a": 0.5, "day": None}, {"a": -0.0, "day": date(1, 1, 1)}]),
        "x": random.choice([None, float("nan"), float("-inf"), -0.0]),
    }


def clock_value(random: random.Random) -> dict[str, Any]:
    return {"n": 1, "clock": time(23, 59, 59, 999_000), "long": Decimal("9" * 40 + ".125")}


ENVELOPES = [
    b'{"schema":null,"payload":{"a":1}}', b'{"schema":{"type":"int32"},"payload":5}', b"x",
    b'{"schema":{"type":"struct","fields":[]},"payload":{"a":1}}', b'{"a":1}', None, b"",
    b'{"payload":{},"schema":null}',
]  # fmt: skip
PAYLOADS = [
    b'{"n":1.0}', b'{"n":"x"}', b'{"n":null}', b'{"n":3000000000}', b'{"n":1,"tiny":128}',
    b'{"n":1,"more":{"a":1}}', b'{"n":1,"more":NaN}', b'{"n":1,"x":5}', b'{"n":1,"n":2}',
    b'{"n":1,"x":9007199254740993}', b"null", b"[]", b'{"n":1},"payload":{"n":2}', b"{}",
    b'{"n":1,"text":5}', b'{"n":1,"big":9223372036854775808}', b'{"n":1,"x":1e400}', b' {"n":1}',
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_envelopes_of_json_converter(seed: int, tmp_path: Path, taken: list[bool]) -> None:
    some = random.Random(seed)
    convert = JsonConverter().from_connect
    begins = convert("t", struct_value(some), SCHEMA) or b""
    begins = begins[: begins.index(b',"payload":') + 11]
    for _ in range(120):
        values = [convert("t", struct_value(some), SCHEMA) for _ in range(some.randint(1, ROWS))]
        if some.random() < 0.3:
            values[some.randrange(len(values))] = begins + some.choice(PAYLOADS) + b"}"
        if some.random() < 0.15:
            values[some.randrange(len(values))] = some.choice(ENVELOPES)
        if some.random() < 0.1:
            values = [convert("t", odd_value(some), ODD) for _ in values]
        check(records(values), tmp_path, envelope=True, tolerate=True, metadata=("offset",))
    assert 0.1 < sum(taken) / len(taken) < 0.9, "both ways are to be met"


def test_typed_values_of_the_embedded_log(tmp_path: Path, taken: list[bool]) -> None:
    some, convert = random.Random(5), TypedConverter().from_connect
    cases = ((struct_value, SCHEMA, True), (odd_value, ODD, False), (days_value, DAYS, False),
             (nested_value, NESTED, False), (clock_value, CLOCK, False))  # fmt: skip
    for make, schema, by_columns in cases:
        values = [convert("t", make(some), schema) for _ in range(30)]
        check(records(values), tmp_path)
        assert taken == [by_columns]
        taken.clear()
        check(records([*values, b'{"n":2}']), tmp_path)
        taken.clear()


Make = Callable[[random.Random], dict[str, Any]]


@pytest.mark.parametrize(
    ("make", "schema", "by_columns"),
    [
        (struct_value, SCHEMA, True),
        (odd_value, ODD, True),
        (days_value, DAYS, True),
        (nested_value, NESTED, True),
        (clock_value, CLOCK, False),
    ],
)
def test_the_embedded_log_by_records_and_batches(
    make: Make, schema: s.Schema, by_columns: bool, tmp_path: Path, taken: list[bool]
) -> None:
    """Batches of Arrow rows and batches of records, from the middle of one to that of another."""
    some = random.Random(1)
    transport = open_transport({"kind": "embedded", "path": str(tmp_path / "log")})
    transport.record_log.create_topic("t", 1)
    producer = transport.record_log.producer("p", None, None)
    more = {"x": float("nan")} if make is struct_value else {}
    values = [{**make(some), **more} for _ in range(50)]
    columns = arrow_types.arrow_schema(schema)
    table = arrow_types.table_of(values, columns, arrow_types.carriers(columns))
    data = to_bytes(table.combine_chunks().to_batches()[0])
    headers = (("h", b"x"),)
    for _ in range(2):
        producer.send_batch(LogBatch("t", 0, 50, b"k", headers, 7, schema_bytes(schema), data))
        producer.send([ProducerRecord("t", 0, None, b'{"n":%d}' % n) for n in range(40)])
        producer.acks()
    log: RecordLog = transport.record_log
    assert isinstance(log, ColumnLog)

    class ByRecords(MemoryLog):
        def read(self, *place: Any) -> Any:
            return log.read(*place)

        def end_offsets(self, topics: Sequence[str]) -> Mapping[tuple[str, int], int]:
            return log.end_offsets(topics)

    for start, end in ((0, 180), (7, 130), (20, 30), (60, 70), (50, 51), (179, 180)):
        task = SliceTask(
            "t", 0, start, end, str(tmp_path), 0, 0, "parquet", METADATA, {}, False, False
        )
        found = [run_slice(one, task) for one in (ByRecords([]), log)]  # type: ignore[arg-type]
        tables = [pyarrow.parquet.read_table(tmp_path / one.staged) for one in found]
        rows = [sorted(map(repr, one.select(sorted(one.column_names)).to_pylist()))
                for one in tables]  # fmt: skip
        assert rows[0] == rows[1], (start, end)
        assert found[0].columns == found[1].columns
        assert found[0].records == found[1].records == end - start
    assert by_columns == all(taken)
    assert any(taken)
    producer.close()
    transport.close()
