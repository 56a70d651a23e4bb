"""SparkSource on a real Spark gives rows as records, once each, in each of its modes."""

import datetime
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.spark.shared import spark_server  # noqa: F401
from support.task.source_tasks import Offsets, Run, values

from headgate.connector import DataError
from headgate.connector.api import SkippedRecord, SourceItem, SourceRecord
from headgate.connector.config import ConfigError
from headgate_connectors.directory import DirectorySource
from headgate_spark.server import SparkServer
from headgate_spark.source import SparkError, SparkSource
from headgate_spark.source_shares import SourceChangedError

pytestmark = pytest.mark.slow

Start = Callable[..., Run]


@pytest.fixture
def start(spark_server: SparkServer, tmp_path: Path) -> Start:  # noqa: F811
    """Starts a task that reads the folder ``in``."""
    (tmp_path / "in").mkdir()

    def started(offsets: Offsets | None = None, task: int = 0, **settings: Any) -> Run:
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        config = {"topic": "t", "format": "parquet", "path": str(tmp_path / "in"), **given}
        quick = {"poll.interval.ms": "10", "files.settle.ms": "0", "incrementing.settle.ms": "0"}
        run = Run(SparkSource, {**quick, **config}, offsets, task, start=False)
        run.context.worker_settings = {"spark.remote": spark_server.address}
        run.task.start(run.config)
        return run

    return started


def write(path: Path, **columns: Any) -> None:
    pq.write_table(pa.table(columns), path, row_group_size=100)


def ids(items: list[SourceItem]) -> list[int]:
    return [item.value["id"] for item in items if isinstance(item, SourceRecord)]


def take(run: Run, polls: int) -> list[SourceItem]:
    """Return the records of `polls` polls, and commit them."""
    found: list[SourceItem] = []
    for _ in range(polls):
        found += committed(run, run.poll() or [])
    run.task.stop()
    return found


def committed(run: Run, items: list[SourceItem]) -> list[SourceItem]:
    for item in items:
        run.offsets.commit(item)
    return items


def rest(run: Run) -> list[SourceItem]:
    """All that there is, committed."""
    return committed(run, run.rest())


def test_files_are_read_once_and_bad_ones_cost_themselves_alone(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    write(folder / "a[1] *.parquet", id=range(700))
    (folder / "b.parquet").write_text("no Parquet")
    write(folder / "c.parquet", id=range(700, 800))
    write(folder / "gr\u00f6\u00dfe \u6570.parquet", id=range(800, 900))
    (folder / "c.parquet").rename(
        folder / "x\udcff.parquet"
    )  # Spark leaves it out, and says nothing
    write(folder / "c.parquet", id=range(700, 800))
    offsets = Offsets()
    found = take(start(offsets, mode="files", batch_rows=200), 2)
    assert ids(found) == list(range(400))
    run = start(offsets, mode="files", batch_rows=200)
    assert ids(rest(run)) == list(range(400, 900))
    aside, odd = run.context.quarantined
    assert "b.parquet: " in aside and "CANNOT_READ_FILE_FOOTER" in aside
    assert odd == f"{folder}/'x\\udcff.parquet' is not read: no UTF-8 in its name"
    write(folder / "c.parquet", id=range(5))
    write(folder / "d.parquet", id=[1000])
    assert ids(rest(run)) == [1000]
    assert any("c.parquet: has " in text and "was changed after 100 rows" in text
               for text in run.context.quarantined)  # fmt: skip
    run.task.stop()


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["another in its place", "written over"])
def test_a_file_that_is_overwritten_while_it_is_read_is_set_aside(
    start: Start, tmp_path: Path, how: str
) -> None:
    """Rows of both would make a file that never was. What was given stays, each row once."""
    file = tmp_path / "in" / "a.parquet"
    write(file, id=range(3_000))
    offsets = Offsets()
    run = start(offsets, mode="files", batch_rows=100)
    found = committed(run, run.poll() or [])
    assert ids(found) == list(range(100))
    other = tmp_path / "other.parquet"
    write(other, id=range(10_000, 14_000))
    if how == "written over":
        file.write_bytes(other.read_bytes())
    else:
        other.rename(file)
    found += rest(run)
    assert ids(found) == list(range(len(ids(found)))), "rows of the old file alone"
    (aside,) = run.context.quarantined
    assert "a.parquet: " in aside
    run.task.stop()
    again = start(offsets, mode="files", batch_rows=100)
    assert rest(again) == []
    (aside,) = again.context.quarantined
    assert f"was changed after {len(ids(found))} rows of it were written" in aside
    again.task.stop()


@pytest.mark.exhaustive
def test_csv_files_with_columns_in_another_order_are_refused(start: Start, tmp_path: Path) -> None:
    """Spark takes columns by their places, and would give one the values of another."""
    folder = tmp_path / "in"
    (folder / "a.csv").write_text("id,n\n1,10\n")
    (folder / "b.csv").write_text("n,id\n20,2\n")
    settings = {"format": "csv", "option_header": "true"}
    run = start(mode="files", schema="id INT, n INT", **settings)
    assert ids(rest(run)) == [1]
    (aside,) = run.context.quarantined
    assert "b.csv: " in aside and "header" in aside
    run.task.stop()
    with pytest.raises(SparkError, match="header"):
        rest(start(mode="bulk", schema="id INT, n INT", **settings))
    swapped = start(mode="bulk", schema="id INT, n INT", option_enforceSchema=True, **settings)
    assert ids(rest(swapped)) == [1, 20], "as Spark has it"


@pytest.mark.exhaustive
def test_bulk_goes_on_where_it_was_and_notices_a_change(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.parquet", id=[*range(1000), *range(50)])
    offsets = Offsets()
    settings = {"mode": "bulk", "shares": 2, "batch_rows": 100, "tasks_max": 2}
    found = take(start(offsets, **settings), 2)
    assert len(found) == 200
    write(folder / "b.parquet", id=range(2000, 2500))
    with pytest.raises(SourceChangedError, match="rows of share 0 are not those"):
        rest(start(offsets, **settings))
    (folder / "b.parquet").unlink()
    for task in (0, 1):
        found += rest(start(offsets, task, **settings))
    assert Counter(ids(found)) == Counter([*range(1000), *range(50)])
    write(folder / "b.parquet", id=[7])
    assert rest(start(offsets, **settings)) == [], "what is read whole is not looked at again"
    with pytest.raises(ConfigError, match="rows were written with 2 shares"):
        start(offsets, **{**settings, "shares": 3})
    with pytest.raises(ConfigError, match=r"configuration path: rows of .*/in were written"):
        start(offsets, **{**settings, "path": "elsewhere"})


@pytest.mark.exhaustive
def test_incrementing_reads_what_comes_and_refuses_what_it_would_lose(
    start: Start, tmp_path: Path
) -> None:
    folder, offsets = tmp_path / "in", Offsets()
    settings = {"mode": "incrementing", "incrementing_column": "id", "batch_rows": 100}
    write(folder / "a.parquet", id=range(500))
    found = take(start(offsets, **settings), 2)
    assert ids(found) == list(range(200))
    run = start(offsets, **settings)
    found += rest(run)
    write(folder / "b.parquet", id=range(500, 600))
    found += rest(run)
    assert ids(found) == list(range(600))
    write(folder / "c.parquet", id=[700, 700])
    with pytest.raises(DataError, match="column id has 700 in more than one row"):
        rest(run)
    write(folder / "c.parquet", id=pa.array([700, None]))
    with pytest.raises(DataError, match="1 rows have null in column id"):
        rest(start(offsets, **settings))
    with pytest.raises(ConfigError, match=r"no for configuration .*expected one of id"):
        rest(start(offsets, **{**settings, "incrementing_column": "no"}))
    write(folder / "c.parquet", id=[0.5])
    (folder / "a.parquet").unlink()
    (folder / "b.parquet").unlink()
    with pytest.raises(ConfigError, match="is of type double, expected whole numbers"):
        rest(start(offsets, **settings))


@pytest.mark.exhaustive
def test_a_bound_is_read_when_it_has_settled(start: Start, tmp_path: Path) -> None:
    """A transaction that took a smaller number commits after one with a greater."""
    write(tmp_path / "in" / "a.parquet", id=[1, 3])
    run = start(mode="incrementing", incrementing_column="id", incrementing_settle_ms=60_000)
    assert run.poll() == [] and run.context.awaited
    write(tmp_path / "in" / "b.parquet", id=[2, 4])
    (share,) = run.task._readers
    share._bound_at -= 60
    assert ids(run.poll()) == [1, 2, 3]


DAY = datetime.date(2020, 2, 29)
TYPED: Mapping[str, Any] = {
    "id": [1, 2],
    "price": pa.array([Decimal("12345678901234567890.123456789012345678"), None]),
    "at": pa.array([1_704_067_200_123_456, None], pa.timestamp("us", "America/New_York")),
    "local": pa.array([1_704_067_200_123_456, None], pa.timestamp("us")),
    "day": pa.array([DAY, None]),
    "flag": pa.array([True, None]),
    "tiny": pa.array([-128, None], pa.int8()),
    "real": pa.array([0.1, None], pa.float32()),
    "bytes": pa.array([b"\x00\xff", None]),
    "list": pa.array([[1, None], None], pa.list_(pa.int32())),
    "map": pa.array([[("k", Decimal("1.5"))], None], pa.map_(pa.string(), pa.decimal128(5, 1))),
    "struct": pa.array(
        [{"x": None, "y": {"z": "\u00e9"}}, None],
        pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))]),
    ),
}


@pytest.mark.exhaustive
def test_values_of_every_type_come_out_equal(start: Start, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", **TYPED)
    found = rest(start(mode="bulk"))
    one, none = sorted(values(found), key=lambda value: value["id"])
    given = pa.table(TYPED)
    assert {name: one[name] for name in ("price", "day", "flag", "tiny", "bytes", "list")} == {
        name: given.column(name)[0].as_py()
        for name in ("price", "day", "flag", "tiny", "bytes", "list")
    }
    assert one["at"] == one["local"] == 1_704_067_200_123_456
    assert one["map"] == {"k": Decimal("1.5")} and one["struct"] == {"x": None, "y": {"z": "é"}}
    assert one["real"] == given.column("real")[0].as_py()
    assert {name for name, value in none.items() if value is not None} == {"id"}
    schema = found[0].value_schema
    assert schema.field("at").schema.parameters == {"unit": "us", "timezone": "UTC"}
    assert schema.field("local").schema.parameters == {"unit": "us"}
    assert schema.field("price").schema.parameters["connect.decimal.precision"] == "38"


@pytest.mark.exhaustive
def test_what_spark_cannot_read_is_said_in_a_line(start: Start, tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=r"DATA_SOURCE_NOT_FOUND.*nonsense"):
        rest(start(mode="bulk", format="nonsense"))
    (tmp_path / "in" / "a.json").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(SparkError, match=r"FAILED_READ_FILE.*a.json.*cause: Unexpected end"):
        rest(start(mode="bulk", format="json", schema="a INT"))
    (tmp_path / "in" / "a.json").write_text('{"v": "P1M"}')
    with pytest.raises(DataError, match="column v is of type interval month, which has no form"):
        rest(start(mode="bulk", format="json", schema="v INTERVAL MONTH"))


OLD = [
    datetime.datetime(1000, 1, 1),
    datetime.datetime(1899, 12, 31),
    datetime.datetime(2024, 2, 29),
]
MODE = "spark.sql.parquet.int96RebaseModeInWrite"


@pytest.mark.parametrize("writer", ["pyarrow", "corrected", "legacy"])
def test_timestamps_of_the_kind_int96_come_as_what_was_written(
    start: Start,
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
    writer: str,
) -> None:
    """That holds also for the year 1000, where Spark's two calendars differ by days.
    DirectorySource does not know the old calendar and refuses such a timestamp."""
    folder = tmp_path / "in"
    if writer == "pyarrow":
        at = pa.array(OLD, pa.timestamp("us"))
        int96: Any = {"use_deprecated_int96_timestamps": True, "store_schema": False}
        pq.write_table(pa.table({"at": at}), folder / "a.parquet", **int96)
    else:
        session = SparkSession.builder.remote(spark_server.address).create()
        for name, value in (
            ("spark.sql.session.timeZone", "UTC"),
            (MODE, writer.upper()),
            ("spark.sql.parquet.outputTimestampType", "INT96"),
        ):
            session.conf.set(name, value)
        texts = ", ".join(f"timestamp'{one}'" for one in OLD)
        frame = session.sql(f"SELECT explode(array({texts})) AS at")
        frame.coalesce(1).write.mode("append").parquet(str(folder))
        session.stop()
    run = start(mode="files")
    read = [item.value["at"] for item in rest(run) if isinstance(item, SourceRecord)]
    run.task.stop()
    micros = [int((one - datetime.datetime(1970, 1, 1)) / datetime.timedelta(microseconds=1))
              for one in OLD]  # fmt: skip
    assert read == micros
    own = {"path": str(folder), "topic": "t", "include": "*.parquet", "file.settle.ms": "0"}
    direct = Run(DirectorySource, {**own, "errors.tolerance": "all"}, until_idle=True).rest()
    seen = [one.value["at"] for one in direct if isinstance(one, SourceRecord)]
    refused = [one.reason for one in direct if isinstance(one, SkippedRecord)]
    if writer == "legacy":
        assert seen == micros[2:]
        assert all("column at has a date before 1582 or a time" in why for why in refused)
        assert len(refused) == 2
    else:
        assert (seen, refused) == (micros, [])
