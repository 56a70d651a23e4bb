"""SparkSink on a real Spark writes typed rows into files, exactly once."""

import datetime
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.commands.pipelines import Up
from support.commands.processes import hurt, seldom_hurt
from support.files.small_disk import FILLER, is_about_space, leave_free, small_file_system
from support.spark.shared import spark_server  # noqa: F401
from support.task.body_bench import BodyBench
from support.task.letters import HEADERS, LETTERS, headers_of, records_of
from support.task.sink_records import committed, fill

from headgate.connector import DataError
from headgate.connector.api import SinkRecord
from headgate.task.messages import TaskKind, TaskOutcome
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types
from headgate_connectors.output.manifest import FOLDER
from headgate_connectors.tables.sink import TableError
from headgate_spark.file_sink import SparkFileSinkTask
from headgate_spark.server import SparkServer
from headgate_spark.sink_target import SparkWriter
from headgate_spark.spark_sink import SparkSinkTask

pytestmark = pytest.mark.slow
PLACE = ("t", 0)
ODD = "k\u00f6ln 100%20#?;:,[a]*{b}'$&+~="


DAY = datetime.date(2020, 2, 29)
TYPED: Mapping[str, Any] = {
    "id": pa.array([1, 2]),
    "kind": pa.array(["a b", "c/d"]),
    "price": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
    "at": pa.array([1_704_067_200_123_456, None], pa.timestamp("us", "UTC")),
    "local": pa.array([1_704_067_200_123_456, None], pa.timestamp("us")),
    "day": pa.array([DAY, None]),
    "byte": pa.array([255, None], pa.uint8()),
    "real": pa.array([0.1, None], pa.float32()),
    "bytes": pa.array([b"\x00\xff", None]),
    "text": pa.array([' "q",\n', ""]),
    "list": pa.array([[1, None], None], pa.list_(pa.int32())),
    "map": pa.array([[("k", 5)], None], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": None}, None], pa.struct([("x", pa.int64())])),
}  # fmt: skip


@pytest.fixture
def task(spark_server: SparkServer, tmp_path: Path) -> Callable[..., SparkSinkTask]:  # noqa: F811
    def started(**settings: Any) -> SparkSinkTask:
        made = SparkSinkTask()
        context = made.context = FakeSinkContext()
        context.worker_settings = {"spark.remote": spark_server.address}
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        config = {"name": "sink", "format": "parquet", "path": str(tmp_path / "out"), **given}
        made.start({"rotate.interval.ms": "0", **config})
        made.open([PLACE])
        return made

    return started


def records(columns: Mapping[str, Any], start: int = 0) -> list[SinkRecord]:
    table = pa.table(columns)
    schema = arrow_types.struct_schema(table.schema)
    values = arrow_types.rows_of(table, arrow_types.carriers(table.schema))
    return [
        SinkRecord("t", 0, start + n, None, value, (), 0, None, schema)
        for n, value in enumerate(values)
    ]


@pytest.mark.exhaustive
def test_values_come_out_equal_and_once(task: Callable[..., SparkSinkTask], tmp_path: Path) -> None:
    subject = task(partition_by="kind")
    subject.put(records(TYPED))
    assert subject.pre_commit({PLACE: 2}) == {PLACE: 2}
    subject.stop()
    again = task(partition_by="kind")
    assert again.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    files = list((tmp_path / "out").rglob("*.parquet"))
    assert {path.parent.name for path in files} == {"kind=a b", "kind=c%2Fd"}
    found = pa.concat_tables([pq.read_table(path, partitioning=None) for path in files])
    found = found.sort_by("id")
    given = pa.table(TYPED).drop_columns(["kind"])
    for name in given.schema.names:
        assert found.column(name).cast(given.schema.field(name).type).to_pylist() == (
            given.column(name).to_pylist()
        ), name
    again.put(records({**TYPED, "kind": pa.array(["", "x"])}, start=2))
    again.stop()
    ((refused, error),) = again.context.reported  # type: ignore[attr-defined]
    assert refused.offset == 2
    assert "column kind of partition.by has an empty text" in str(error)


def enveloped(n: object, kind: str = "a") -> str:
    """Return a record as JsonConverter writes it, with the type of `n`."""
    types = {"n": "string" if isinstance(n, str) else "int64", "kind": "string"}
    fields = [{"field": name, "type": of, "optional": True} for name, of in types.items()]
    schema = {"type": "struct", "fields": fields}
    return json.dumps({"schema": schema, "payload": {"n": n, "kind": kind}})


GOOD = [enveloped(n) for n in range(3)]
WRONG_TYPE, EMPTY, NO_JSON = enveloped("x"), enveloped(9, ""), "{"


@pytest.mark.parametrize("which", [SparkFileSinkTask, SparkSinkTask])
def test_a_record_that_cannot_be_written_costs_itself_alone(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
    which: type[Any],
) -> None:
    """A column of another type, no JSON and, for SparkSink, an empty text that Spark writes as
    null: one dead letter each, and without tolerance the task fails by name."""
    bad = [WRONG_TYPE, NO_JSON]
    own = {"batch.interval.ms": "0"}
    if which is SparkSinkTask:
        bad.append(EMPTY)
        own = {"rotate.interval.ms": "0", "partition.by": "kind"}
    settings = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "spark.remote": spark_server.address,
    }
    config = {"name": "sink", "topics": "t", "path": str(tmp_path / "out"), "format": "parquet"}
    config |= {**own, LETTERS: "letters", HEADERS: "true"}

    def run(tolerance: str) -> BodyBench:
        given = {**config, "errors.tolerance": tolerance}
        kind = TaskKind.SINK
        return BodyBench(tmp_path, which, given, kind=kind, settings=settings).start()

    fill(tmp_path, [GOOD[0].encode()])
    bench = run("all")
    bench.until(lambda: committed(tmp_path) == {("t", 0): 1}, 120)
    values = [one.encode() for one in [GOOD[1], *bad, GOOD[2]]]
    fill(tmp_path, values)
    bench.until(lambda: committed(tmp_path) == {("t", 0): 1 + len(values)}, 120)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    again = run("all")
    time.sleep(1)
    again.stop()
    assert bench.progress.skipped == len(bad)
    rows = ds.dataset(tmp_path / "out", format="parquet").to_table(columns=["n"])
    assert sorted(rows["n"].to_pylist()) == [0, 1, 2]
    letters = records_of(tmp_path, "letters")
    assert sorted((one.value or b"").decode() for one in letters) == sorted(bad)
    told = {one.value: headers_of(one) for one in letters}
    wrong = told[WRONG_TYPE.encode()]
    assert (wrong["__connect.errors.offset"], wrong["__connect.errors.stage"]) == ("2", "TASK_PUT")
    assert "column n" in str(wrong["__connect.errors.exception.message"])
    fill(tmp_path, [WRONG_TYPE.encode()])
    failing = run("none")
    failing.until(lambda: failing.ended, 120)
    assert failing.ended is not None
    assert failing.ended.outcome is TaskOutcome.FAILED
    assert "column n" in failing.ended.reason


@pytest.mark.exhaustive
def test_a_folder_may_have_any_name(task: Callable[..., SparkSinkTask], tmp_path: Path) -> None:
    """Spark was given an escaped path, and wrote to a folder named k%C3%B6ln."""
    subject = task(path=str(tmp_path / ODD))
    subject.put(records({"id": pa.array([1, 2])}))
    subject.stop()
    (file,) = (tmp_path / ODD).glob("*.parquet")
    assert pq.read_table(file)["id"].to_pylist() == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == [ODD]


@pytest.mark.exhaustive
def test_what_is_refused_is_what_spark_would_change(
    task: Callable[..., SparkSinkTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of value that SparkSink refuses is written without the check, and comes back
    changed."""
    monkeypatch.setattr(SparkWriter, "check_rows", lambda *_: None)

    def written(columns: Mapping[str, Any], kind: str, **settings: str) -> list[Path]:
        folder = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        subject = task(format=kind, path=str(folder), **settings)
        subject.put(records(columns))
        subject.stop()
        return [path for path in folder.rglob("*") if path.is_file() and FOLDER not in path.parts]

    numbers = {"n": [1, 2]}
    for null in ("", "__HIVE_DEFAULT_PARTITION__"):
        files = written({**numbers, "p": ["a", null]}, "parquet", partition_by="p")
        assert {path.parent.name for path in files} == {"p=a", "p=__HIVE_DEFAULT_PARTITION__"}
    files = written({**numbers, "p": [b"a", b"\xff"]}, "parquet", partition_by="p")
    assert {path.parent.name for path in files} == {"p=a", "p=\ufffd"}
    (file,) = written({"t": ["a\nb", "", None]}, "text")
    assert file.read_text() == "a\nb\n\n\n"
    for alone, kept in (([1, None], "c\n1\n"), (["x", None], "c\nx\n")):
        (file,) = written({"c": pa.array(alone)}, "csv")
        assert file.read_text() == kept
    (file,) = written({"c": pa.array([1, None])}, "csv", option_nullValue="NULL")
    assert file.read_text() == "c\n1\nNULL\n"


def test_a_time_of_the_year_1000_is_that_for_other_readers_too(
    task: Callable[..., SparkSinkTask], tmp_path: Path
) -> None:
    """Spark's own INT96 is another time for pyarrow, without a word."""
    moment = datetime.datetime(1000, 1, 1, tzinfo=datetime.UTC)
    subject = task()
    subject.put(records({"at": pa.array([moment], pa.timestamp("us", "UTC"))}))
    subject.stop()
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["at"].to_pylist() == [moment]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_text_formats_keep_microseconds_and_spaces(
    task: Callable[..., SparkSinkTask], tmp_path: Path, kind: str
) -> None:
    subject = task(format=kind)
    names = ["id", "price", "at", "local", "text"]
    subject.put(records({name: TYPED[name] for name in names}))
    subject.stop()
    (file,) = (tmp_path / "out").glob(f"*.{kind}")
    text = file.read_text()
    for part in ("2024-01-01T00:00:00.123456Z", "2024-01-01T00:00:00.123456", "890.12"):
        assert part in text
    if kind == "json":
        assert json.loads(text.splitlines()[0])["text"] == ' "q",\n'
    else:
        assert '" ""q"",\n"' in text and text.startswith("id,price,at,local,text\n")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("parquet", {}),
        ("orc", {}),
        ("csv", {"compression": "gzip"}),
        ("json", {}),
        ("text", {"compression": "bzip2"}),
        ("xml", {"rowTag": "row"}),
    ],
)
def test_files_that_spark_wrote_are_replaced_if_they_are_to_be(
    task: Callable[..., SparkSinkTask],
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
    kind: str,
    options: Mapping[str, str],
) -> None:
    root = tmp_path / "out"
    given = {f"option_{name}": text for name, text in options.items()}
    session = SparkSession.builder.remote(spark_server.address).create()
    try:
        old = session.sql("SELECT 'old' AS name, 'a' AS kind UNION SELECT 'older', 'b'")
        writer = old.write.format(kind).options(**options).partitionBy("kind")
        writer.save(f"file://{root}")
        reader = session.read.format(kind).options(**options).schema("name STRING, kind STRING")

        def names() -> list[str]:
            rows = reader.load(f"file://{root}").collect()
            return sorted(row["name"] for row in rows if row["name"] != "name")

        assert names() == ["old", "older"]
        with pytest.raises(TableError, match="has files that are not of this sink: kind=a/part-"):
            task(format=kind, partition_by="kind", write_mode="error", **given)
        subject = task(format=kind, partition_by="kind", write_mode="overwrite", **given)
        assert names() == ["old", "older"]
        subject.put(records({"name": pa.array(["new"]), "kind": pa.array(["b"])}))
        subject.put(records({"name": pa.array(["newer"]), "kind": pa.array(["c"])}, start=1))
        subject.stop()
        assert names() == ["new", "newer"]
    finally:
        session.stop()


PRICES = {
    "id": pa.array([1, 2, 3]),
    "name": pa.array(["a", "b", None]),
    "price": pa.array([Decimal("1.10"), Decimal("-2.00"), None], pa.decimal128(9, 2)),
}


@pytest.mark.exhaustive
def test_a_query_over_each_batch_is_what_is_written_once(
    task: Callable[..., SparkSinkTask], tmp_path: Path
) -> None:
    query = "SELECT id, upper(name) AS name, price * 2 AS double FROM batch WHERE price > 0"
    subject = task(sql=query)
    subject.put(records(PRICES))
    nothing_left = {**PRICES, "price": pa.array([None] * 3, pa.decimal128(9, 2))}
    subject.put(records(nothing_left, start=3))
    subject.put(records(PRICES, start=6))
    assert subject.pre_commit({PLACE: 9}) == {PLACE: 9}
    subject.stop()
    again = task(sql=query)
    assert again.context.seeks == {PLACE: 9}  # type: ignore[attr-defined]
    again.stop()
    found = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "out").glob("*.parquet")])
    assert found.to_pylist() == 2 * [{"id": 1, "name": "A", "double": Decimal("2.20")}]
    assert found.schema.types == [pa.int64(), pa.string(), pa.decimal128(11, 2)]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT nothing FROM batch", r"query of the setting sql: .*nothing"),
        ("SELEC id FROM batch", r"query of the setting sql: .*SELEC"),
        ("SELECT make_interval(1) AS x FROM batch", r"column x is of type interval"),
        ("SELECT id, name FROM batch", r"name"),
    ],
)
@pytest.mark.exhaustive
def test_a_query_that_cannot_be_written_fails_and_commits_nothing(
    task: Callable[..., SparkSinkTask], tmp_path: Path, query: str, error: str
) -> None:
    """The last of them gives a column that the folder has not."""
    first = task(sql="SELECT id FROM batch")
    first.put(records(PRICES))
    first.stop()
    subject = task(sql=query)
    with pytest.raises((TableError, DataError), match=error):
        subject.put(records(PRICES, start=3))
    assert subject.pre_commit({PLACE: 6}) == {PLACE: 3}
    subject.stop()


@pytest.mark.exhaustive
def test_a_batch_that_a_full_disk_cuts_short_is_told_and_written_once_there_is_space(
    task: Callable[..., SparkSinkTask], tmp_path: Path
) -> None:
    with small_file_system(tmp_path / "out", 8) as disk:
        first = task()
        first.put(records(PRICES))
        first.stop()
        done, refused = 3, 0
        for pages in (0, 1, 2, 3, 4, 6, 9, 20):
            subject = task()
            leave_free(disk, pages)
            try:
                subject.put(records(PRICES, start=done))
                done += 3
            except (TableError, OSError) as error:
                assert is_about_space(error), error
                refused += 1
            (disk / FILLER).unlink()
            subject.stop()
            again = task()
            assert again.context.seeks == {PLACE: done}  # type: ignore[attr-defined]
            again.put(records(PRICES, start=done))
            again.stop()
            done += 3
            files = [pq.read_table(path) for path in disk.glob("*.parquet")]
            assert pa.concat_tables(files).num_rows == done
        assert refused > 1
        assert done > 3 + 3 * 8


PIPELINE = """
[cluster]
workers = 2
data = "state"
runner = "spark"
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
"scheduled.rebalance.max.delay.ms" = 500
"offset.flush.interval.ms" = 500

[spark]
master = "local[2]"

[connectors.read]
"connector.class" = "SparkSource"
topic = "rows"
format = "parquet"
mode = "files"
path = "in"
"poll.interval.ms" = 300
"files.settle.ms" = 0
"batch.rows" = 500
"tasks.max" = 2

[connectors.write]
"connector.class" = "SparkSink"
topics = "rows"
format = "orc"
path = "out"
"partition.by" = "kind"
"rotate.records" = 3000
"rotate.interval.ms" = 1000
"tasks.max" = 2
"""
KILLS, ROWS = 10, 5_000


@pytest.mark.exhaustive
def test_from_files_to_files_by_spark_through_kills(
    tmp_path: Path, ups: list[Up], say: Callable[[str], None]
) -> None:
    seed = random.randrange(2**32)
    say(f"seed {seed}")
    chance = random.Random(seed)
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    _add(tmp_path, 0)
    up = Up(tmp_path).start()
    ups.append(up)
    up.wait_for("rows in the folder", lambda: sum(_found(tmp_path).values()) > 0, 180)
    done: Counter[str] = Counter()
    for number in range(1, KILLS + 1):
        _add(tmp_path, number)
        time.sleep(chance.uniform(0.5, 4))
        alive = [one for one in up.look() if "headgate_runtime" in one.command]
        with suppress(ProcessLookupError):
            done[hurt(seldom_hurt(alive, done, chance))] += 1
    wanted = Counter(range((KILLS + 1) * ROWS))
    up.wait_for("all rows", lambda: len(_found(tmp_path)) >= len(wanted), 300)
    assert up.end() == 0, up.tail()
    assert _found(tmp_path) == wanted
    say(f"{dict(done)}, {len(wanted)} rows once each")


def _add(folder: Path, number: int) -> None:
    ids = range(number * ROWS, (number + 1) * ROWS)
    table = pa.table({"id": ids, "kind": [f"k{n % 3}" for n in ids]})
    pq.write_table(table, folder / f"{number}.draft", row_group_size=1000)
    (folder / f"{number}.draft").rename(folder / "in" / f"{number}.parquet")


def _found(folder: Path) -> "Counter[int]":
    # Not below the sink's own folder, where files come and go.
    files = [str(path) for path in (folder / "out").glob("kind=*/*.orc")]
    if not files:
        return Counter()
    return Counter(ds.dataset(files, format="orc").to_table(columns=["id"])["id"].to_pylist())
