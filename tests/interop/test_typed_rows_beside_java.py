"""Typed rows go between our connectors and Java's, each on its own worker, by JsonConverter with
schemas. Each side's sink reads the rows of the other side's source."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.worker import HeadgateWorker
from support.java.connect import SOURCES
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic

from local_kafka.java_connect import JavaWorker
from local_kafka.jvm import compile_java

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

NAME = "TypedRows"
SETTINGS = {"offset.flush.interval.ms": "500"}
"""The workers' converters are JsonConverter, whose schemas.enable is true unless it is said."""
AT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.UTC)
PRICE = Decimal("-12345678901234567890.12")


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    classes = tmp_path / "plugins" / "typed"
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True)
    for kind in ("source.Source", "sink.Sink"):
        name = f"{NAME}${kind.partition('.')[2]}"
        (services / f"org.apache.kafka.connect.{kind}Connector").write_text(f"{name}\n")
    compile_java(SOURCES / f"{NAME}.java", classes)
    return classes.parent


def rows() -> pa.Table:
    return pa.table(
        {
            "int8": pa.array([-128, None], pa.int8()),
            "int16": pa.array([32767, None], pa.int16()),
            "int32": pa.array([-7, None], pa.int32()),
            "int64": pa.array([-(2**63), None]),
            "float32": pa.array([0.1, None], pa.float32()),
            "float64": pa.array([1e300, None]),
            "bool": pa.array([True, None]),
            "text": pa.array(["\u00e9\U0001f600", None]),
            "bytes": pa.array([b"\x00\xff", None]),
            "price": pa.array([PRICE, None], pa.decimal128(38, 2)),
            "day": pa.array([datetime.date(1969, 12, 31), None]),
            "time": pa.array([86_399_999, None], pa.time32("ms")),
            "at": pa.array([-1, None], pa.timestamp("ms", "UTC")),
            "list": pa.array([[1, 2], None], pa.list_(pa.int32())),
            "map": pa.array([[("k", 5)], None], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array([{"x": 0.5}, None], pa.struct([("x", pa.float32())])),
        }
    )


READ_BY_JAVA = {
    "int8": ("INT8", "Byte", "-128"),
    "int16": ("INT16", "Short", "32767"),
    "int32": ("INT32", "Integer", "-7"),
    "int64": ("INT64", "Long", f"{-(2**63)}"),
    "float32": ("FLOAT32", "Float", "0.1"),
    "float64": ("FLOAT64", "Double", "1.0E300"),
    "bool": ("BOOLEAN", "Boolean", "true"),
    "text": ("STRING", "String", "\u00e9\U0001f600"),
    "bytes": ("BYTES", "byte[]", "00ff"),
    "price": ("BYTES:Decimal{connect.decimal.precision=38, scale=2}", "BigDecimal", f"{PRICE}"),
    "day": ("INT32:Date", "Date", "-86400000"),
    "time": ("INT32:Time", "Date", "86399999"),
    "at": ("INT64:Timestamp", "Date", "-1"),
    "list": ("ARRAY<INT32?>", "List", "[1, 2]"),
    "map": ("MAP<STRING,INT64?>", "Map", "{k=5}"),
    "struct": ("STRUCT[x FLOAT32?]", "Struct", "Struct{x=0.5}"),
}


def test_each_reads_with_types_what_the_other_wrote(
    plugins: Path,
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],
    tmp_path: Path,
) -> None:
    ours_to_java, java_to_ours = f"{kafka_name}-a", f"{kafka_name}-b"
    for topic in (ours_to_java, java_to_ours):
        create_topic(kafka_broker.address, topic)
    (tmp_path / "in").mkdir()
    pq.write_table(rows(), tmp_path / "in" / "rows.parquet")
    file, out = tmp_path / "java.txt", tmp_path / "out"
    java = java_worker(
        kafka_broker.address, f"{kafka_name}-java", {**SETTINGS, "plugin.path": str(plugins)}
    )
    ours = headgate_worker(kafka_broker.address, f"{kafka_name}-ours", SETTINGS)
    source = {"connector.class": f"{NAME}$Source", "topic": java_to_ours, **typed_on_the_way()}
    sink = {"connector.class": f"{NAME}$Sink", "topics": ours_to_java, "file": str(file)}
    files = {"connector.class": "DirectorySource", "path": str(tmp_path / "in")}
    lake = {"connector.class": "DirectorySink", "topics": java_to_ours, "path": str(out)}
    for worker, name, config in (
        (java, "source", source),
        (java, "sink", sink),
        (ours, "files", {**files, "topic": ours_to_java}),
        (ours, "lake", {**lake, "rotate.interval.ms": "300"}),
    ):
        reply = worker.rest.create(name, config)
        assert reply.status == 201, reply.body
    count = 2 * len(READ_BY_JAVA)
    await_true("rows in Java", lambda: file.exists() and lines(file) >= count, 90, ours.tail)
    await_true("rows of Java", lambda: any(out.glob("*.parquet")), 90, ours.tail)
    check_ours(file)
    check_javas(out)


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def check_ours(file: Path) -> None:
    cells = [line.split("\t") for line in file.read_text().splitlines()]
    first, second = cells[: len(READ_BY_JAVA)], cells[len(READ_BY_JAVA) :]
    assert {cell[0]: tuple(cell[1:]) for cell in first} == {
        name: (f"{kind}?", value, text) for name, (kind, value, text) in READ_BY_JAVA.items()
    }
    assert {cell[0]: tuple(cell[1:]) for cell in second} == {
        name: (f"{kind}?", "-", "null") for name, (kind, _, _) in READ_BY_JAVA.items()
    }


def typed_on_the_way() -> dict[str, str]:
    """Java's transforms that make typed values of text."""
    package = "org.apache.kafka.connect.transforms"
    return {
        "transforms": "made,more,cast",
        "transforms.made.type": f"{package}.TimestampConverter$Value",
        "transforms.made.field": "made",
        "transforms.made.format": "yyyy-MM-dd",
        "transforms.made.target.type": "Date",
        "transforms.more.type": f"{package}.InsertField$Value",
        "transforms.more.static.field": "more",
        "transforms.more.static.value": "42",
        "transforms.cast.type": f"{package}.Cast$Value",
        "transforms.cast.spec": "more:int16",
    }


def check_javas(out: Path) -> None:
    (path,) = out.glob("*.parquet")
    table = pq.read_table(path)
    utc = pa.timestamp("ms", "UTC")
    struct = pa.struct([pa.field("x", pa.float32(), nullable=False), ("y", pa.string())])
    expected: dict[str, tuple[pa.DataType, object]] = {
        "int8": (pa.int8(), -128),
        "int16": (pa.int16(), 32767),
        "int32": (pa.int32(), -7),
        "int64": (pa.int64(), -(2**63)),
        "float32": (pa.float32(), pa.scalar(0.1, pa.float32()).as_py()),
        "float64": (pa.float64(), 1e300),
        "bool": (pa.bool_(), True),
        "text": (pa.string(), "\u00e9\U0001f600"),
        "bytes": (pa.binary(), b"\x00\xff"),
        "none": (pa.string(), None),
        "price": (pa.decimal128(38, 2), PRICE),
        "day": (pa.date32(), datetime.date(1969, 12, 31)),
        "time": (pa.time32("ms"), datetime.time(23, 59, 59, 999_000)),
        "at": (utc, AT),
        "list": (pa.list_(pa.field("element", pa.int32(), nullable=False)), [1, 2]),
        "map": (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [("k", 5)]),
        "struct": (struct, {"x": 0.5, "y": None}),
        "made": (pa.date32(), datetime.date(2026, 11, 26)),
        "more": (pa.int16(), 42),
    }
    assert {field.name: field.type for field in table.schema} == {
        name: kind for name, (kind, _) in expected.items()
    }
    assert table.to_pylist() == [{name: value for name, (_, value) in expected.items()}]
