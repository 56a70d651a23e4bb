"""Values in the partition columns of tables come out as they went in, or are refused by name.

Delta keeps them as text in its log. Both formats have folders named after them.
"""

import datetime
import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from support.task.iceberg_tables import PLACE, catalog, iceberg_task

from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.tables.sink import TableError

TEXTS = [
    "a/b", "a=b", "%41", "a%2Fb", " a", "a ", "null", "a\nb", "\t",
    "ü", "u\u0308", "'", '"', "\\", "+", "#", "?", ":", ".", "..", "A", "a", "🦔", "\x7f", "\x01",
]  # fmt: skip
WHOLE = {f"int{bits}": [-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)}
MICROS = [-62_135_596_800_000_000, -1, 0, 1, 1_704_067_200_123_456, 253_402_300_799_999_999]
KINDS: Mapping[str, pa.Array] = {
    **{name: pa.array([*values, None], getattr(pa, name)()) for name, values in WHOLE.items()},
    "uint64": pa.array([0, 2**64 - 1], pa.uint64()),
    "bool": pa.array([True, False, None]),
    "text": pa.array([*TEXTS, None]),
    "bytes": pa.array([b"\x00\xff", b"a", b"\xc3\xbc", b"\\u0041", None]),
    "decimal": pa.array([Decimal("0.00"), Decimal("1.05"), Decimal("12345678901234567890.12")]),
    "whole decimal": pa.array([Decimal(-5), Decimal(0)], pa.decimal128(20, 0)),
    "date": pa.array(
        [datetime.date.min, datetime.date(1969, 12, 31), datetime.date(1582, 10, 10),
         datetime.date.max, None]
    ),
    "instant": pa.array(MICROS, pa.timestamp("us", "UTC")),
    "local": pa.array(MICROS, pa.timestamp("us")),
    "float": pa.array([0.1, -0.0, 0.0, math.inf, -math.inf, math.nan, 3.4e38, 1e-45], pa.float32()),
    "double": pa.array([0.1, -0.0, 0.0, math.inf, -math.inf, math.nan, 1e100, 5e-100, None]),
}  # fmt: skip


def records(values: pa.Array) -> list[SinkRecord]:
    given = pa.table({"n": pa.array(range(len(values)), pa.int64()), "k": values})
    schema = arrow_types.struct_schema(given.schema)
    rows = arrow_types.rows_of(given, arrow_types.carriers(given.schema))
    return [
        SinkRecord("t", 0, offset, None, value, (), 0, None, schema)
        for offset, value in enumerate(rows)
    ]


def into_delta(folder: Path, values: pa.Array, context: FakeSinkContext | None = None) -> Any:
    subject = DeltaSinkTask()
    subject.context = given = context or FakeSinkContext(reports=False)
    config = {"name": "sink", "path": str(folder / "table"), "partition.by": "k"}
    subject.start({"rotate.records": str(len(values)), **config})
    subject.open([PLACE])
    subject.put(records(values))
    given.stopping = True
    subject.pre_commit({PLACE: len(values)})
    return DeltaTable(folder / "table").to_pyarrow_table()


def into_iceberg(folder: Path, values: pa.Array) -> Any:
    iceberg_task(folder, rotate_records=len(values), partition_by="k").put(records(values))
    return SqlCatalog("default", **catalog(folder)).load_table("shop.rows").scan().to_arrow()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or repr(one) == repr(other)
    return bool(one == other)


REFUSED: Mapping[tuple[Any, str], str] = {
    (into_delta, "bytes"): "column k of the table's partitions has bytes",
    (into_iceberg, "float"): "column k is of type float, which has no partitions",
    (into_iceberg, "double"): "column k is of type double, which has no partitions",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("into", [into_delta, into_iceberg])
def test_a_value_of_a_partition_column_comes_out_as_it_went_in(
    tmp_path: Path, into: Any, kind: str
) -> None:
    values = KINDS[kind]
    if why := REFUSED.get((into, kind)):
        with pytest.raises(TableError, match=why):
            into(tmp_path, values)
        return
    found = into(tmp_path, values).sort_by("n")
    was, now = values.to_pylist(), found["k"].cast(values.type).to_pylist()
    wrong = [(a, b) for a, b in zip(was, now, strict=True) if not same(a, b)]
    assert not wrong


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (pa.array(["x", "__HIVE_DEFAULT_PARTITION__", None]), "which stands for null"),
        (pa.array([Decimal("0.05"), Decimal("-0.05"), None]), "a decimal below zero"),
    ],
)
def test_a_value_that_delta_has_no_form_for_is_refused_alone(
    tmp_path: Path, values: pa.Array, why: str
) -> None:
    context = FakeSinkContext(reports=True)
    found = into_delta(tmp_path, values, context).sort_by("n")
    assert found["n"].to_pylist() == [0, 2]
    assert found["k"].to_pylist() == [values[0].as_py(), None]
    ((refused, error),) = context.reported
    assert refused.offset == 1
    assert f"column k of partition.by has {why}" in str(error) or why in str(error)


def test_a_table_of_others_that_is_partitioned_by_bytes_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("k", pa.binary())])
    DeltaTable.create(tmp_path / "table", schema, partition_by=["k"])
    with pytest.raises(TableError, match="partitions has bytes"):
        into_delta(tmp_path, pa.array([b"x"]))
