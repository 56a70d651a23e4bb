"""DirectorySink with partition.by: names of folders, programs that read them, and kills."""

import datetime
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.depth import tries
from support.task.killed_sink import Killed, kill_at

from headgate.connector import DataError, Schema
from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.connector.config import ConfigError
from headgate.testing import FakeSinkContext
from headgate_connectors.directory_sink import DirectorySink, DirectorySinkTask
from headgate_connectors.output.manifest import ManifestError
from headgate_connectors.output.partitions import escaped

ROW = s.struct({"n": s.INT64, "city": s.STRING.as_optional()})
PLACE = ("t", 0)
ODD = [
    *("a/b", "a=b", "100%", "%2F", "x:y", 'q"q', "it's", "a b", " lead", "trail ", ".", ".."),
    *(
        "Köln",
        "東京",
        "🎈",
        "back\\slash",
        "new\nline",
        "tab\t",
        "[x]{y}^",
        "#?*",
        "\x7f",
        "007",
        "NULL",
    ),
    *("true", "1e5", "__hive_default_partition__", "-", "+", "a+b", "&amp;", "~", "$HOME", "`"),
]


def task(folder: Path, by: str, **settings: Any) -> DirectorySinkTask:
    made = DirectorySinkTask()
    made.context = FakeSinkContext(reports=False)
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    base = {"name": "sink", "path": str(folder), "rotate.interval.ms": "600000"}
    made.start({**base, "partition.by": by, **config})
    made.open([PLACE])
    return made


def record(offset: int, value: Any, schema: Schema | None = ROW, time_ms: int = 0) -> SinkRecord:
    return SinkRecord("t", 0, offset, None, value, (), time_ms, None, schema)


def cities(*names: str | None, first: int = 0) -> list[SinkRecord]:
    return [record(n, {"n": n, "city": name}) for n, name in enumerate(names, first)]


def stop(subject: DirectorySinkTask, end: int) -> None:
    subject.context.stopping = True  # type: ignore[misc]
    assert subject.pre_commit({PLACE: end}) == {PLACE: end}


def table(folder: Path, **types: Any) -> list[dict[str, Any]]:
    """Return the folder of partitions as pyarrow reads it."""
    by = ds.partitioning(pa.schema(list(types.items())), flavor="hive")
    paths = [str(path) for path in sorted(folder.glob("*=*/**/*.parquet"))]
    found = ds.dataset(paths, partitioning=by, format="parquet", partition_base_dir=str(folder))
    return sorted(found.to_table().to_pylist(), key=lambda row: int(row["n"]))


def test_values_come_back_equal_from_the_names_of_folders(tmp_path: Path) -> None:
    subject = task(tmp_path, "city")
    subject.put(cities(*ODD, None))
    stop(subject, len(ODD) + 1)
    assert table(tmp_path, city=pa.string()) == [
        {"n": n, "city": city} for n, city in enumerate([*ODD, None])
    ]
    assert (tmp_path / "city=__HIVE_DEFAULT_PARTITION__").is_dir()
    assert all(pq.read_schema(path).names == ["n"] for path in tmp_path.glob("*/*.parquet"))


def test_types_that_a_folder_can_hold(tmp_path: Path) -> None:
    schema = s.struct({"n": s.INT64, "i": s.INT8, "b": s.BOOLEAN, "d": s.DATE_SCHEMA})
    value = {"n": 0, "i": -5, "b": True, "d": datetime.date(901, 2, 3)}
    subject = task(tmp_path, "i,b,d")
    subject.put([record(0, value, schema)])
    stop(subject, 1)
    (path,) = tmp_path.glob("*=*/**/*.parquet")
    assert path.parent == tmp_path / "i=-5/b=true/d=0901-02-03"
    types = {"i": pa.int8(), "b": pa.bool_(), "d": pa.date32()}
    assert table(tmp_path, **types) == [value]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (s.STRING, "", "city is empty, which as a folder would be read back as another value"),
        (s.STRING, "__HIVE_DEFAULT_PARTITION__", "would be read back as another value"),
        (s.STRING, "a\0b", "would be read back as another value"),
        (s.STRING, "x" * 251, "folder name of 256 bytes, expected at most 255"),
        (s.FLOAT64, 0.5, "city is of type .*float64, expected a text"),
        (
            s.TIMESTAMP_SCHEMA,
            datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
            "Timestamp, expected",
        ),
        (s.BYTES, b"x", "bytes, expected a text"),
        (s.decimal_of(2, 9), Decimal(1), "Decimal, expected a text"),
    ],
)
def test_values_that_no_folder_can_hold_are_refused_by_name(
    tmp_path: Path, schema: Schema, value: Any, expected: str
) -> None:
    with pytest.raises(DataError, match=rf"at t-0 offset 7.*{expected}"):
        task(tmp_path, "city").put(
            [record(7, {"n": 7, "city": value}, s.struct({"n": s.INT64, "city": schema}))]
        )
    assert list(tmp_path.glob("city=*")) == []


def test_a_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"offset 0 has no field town.* it has n, city"):
        task(tmp_path, "town").put(cities("Rome"))
    with pytest.raises(DataError, match=r"all columns \(n, city\) are in partition.by"):
        task(tmp_path / "all", "n,city").put(cities("Rome"))


def test_folders_of_time_are_in_the_time_zone(tmp_path: Path) -> None:
    """The hour that comes twice when summer ends is one folder."""
    subject = task(
        tmp_path, "day=%Y-%m-%d,hour=%H", partition_timezone="Europe/Berlin", rotate_records=100
    )
    hour = 3_600_000
    start = 1_792_879_200_000 + 0  # 2026-10-25 00:00 in Berlin
    subject.put([record(n, {"n": n, "city": "x"}, time_ms=start + n * hour) for n in range(4)])
    stop(subject, 4)
    found = table(tmp_path, day=pa.string(), hour=pa.string())
    places = [(row["day"], row["hour"]) for row in found]
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert datetime.datetime.fromtimestamp(start / 1000, zone).isoformat()[:13] == "2026-10-25T00"
    assert places == [("2026-10-25", hour) for hour in ("00", "01", "02", "02")]
    assert [row["n"] for row in found] == [0, 1, 2, 3]


def test_columns_may_stay_in_the_files(tmp_path: Path) -> None:
    subject = task(tmp_path, "city", partition_keep_columns=True)
    subject.put(cities("Rome"))
    stop(subject, 1)
    (path,) = tmp_path.glob("city=Rome/*.parquet")
    assert pq.ParquetFile(path).read().to_pylist() == [{"n": 0, "city": "Rome"}]


@pytest.mark.parametrize(
    ("value", "schema", "keeps", "line"),
    [
        ('{"n": 1.0, "city": "Rome"}', None, True, '{"n": 1.0, "city": "Rome"}'),
        ({"n": 1, "city": "Rome"}, None, False, '{"n":1}'),
        ({"n": 1, "city": "Rome"}, ROW, False, '{"n":1}'),
        ({"n": 1, "city": "Rome"}, ROW, True, '{"n":1,"city":"Rome"}'),
    ],
)
def test_lines_of_json(
    tmp_path: Path, value: Any, schema: Schema | None, keeps: bool, line: str
) -> None:
    subject = task(tmp_path, "city", format="jsonl", partition_keep_columns=keeps)
    subject.put([record(0, value, schema)])
    stop(subject, 1)
    (path,) = tmp_path.glob("city=Rome/*.jsonl")
    assert path.read_text() == line + "\n"


def test_text_of_json_is_not_changed_unasked(tmp_path: Path) -> None:
    subject = task(tmp_path, "city", format="jsonl")
    with pytest.raises(DataError, match=r"set partition.keep.columns = true"):
        subject.put([record(0, '{"n": 1.0, "city": "Rome"}', None)])


@pytest.mark.parametrize("by", ["day=%Y-%m-%d", "Day=%Y", "city,day=%Y"])
@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "dict", "text"])
def test_a_field_with_the_name_of_folders_of_time_is_refused(
    tmp_path: Path, by: str, form: str
) -> None:
    """Spark reads the folder's value and not the field's, pyarrow and DuckDB may refuse both."""
    value = {"n": 1, "city": "Rome", "day": "a day of ours"}
    schema = s.struct({"n": s.INT64, "city": s.STRING, "day": s.STRING})
    given = {"dict": record(7, value, None), "text": record(7, json.dumps(value), None)}
    kind = "jsonl" if form in given else form
    subject = task(tmp_path, by, format=kind, partition_keep_columns=form == "text")
    told = r"at t-0 offset 7: field day has the name of the folders [Dd]ay= of partition.by"
    with pytest.raises(DataError, match=told):
        subject.put([given.get(form, record(7, value, schema))])
    assert list(tmp_path.glob("*=*")) == []


def test_a_field_that_differs_from_a_folder_in_case_only_is_refused(tmp_path: Path) -> None:
    given = record(7, {"city": "Rome", "CITY": "Oslo"}, None)
    with pytest.raises(DataError, match="field CITY has the name of the folders city="):
        task(tmp_path, "city", format="jsonl").put([given])
    plain = task(tmp_path / "plain", "day=%Y", format="jsonl")
    plain.put([record(0, text, None) for text in ("day", "1", '{"n":1}')])


def test_json_that_is_too_deep_costs_itself_alone(tmp_path: Path) -> None:
    """Once such a record ended the task."""
    deep = "[" * 200_000
    with pytest.raises(DataError, match="at t-0 offset 7 has no fields"):
        task(tmp_path, "city", format="jsonl").put([record(7, deep, None)])


def test_a_task_has_at_most_so_many_files_open(tmp_path: Path) -> None:
    subject = task(tmp_path, "city", open_max=3)
    most = 0
    for n in range(40):
        subject.put(cities(f"c{n % 7}", first=n))
        most = max(most, len(list((tmp_path / "_headgate/staging").iterdir())))
    stop(subject, 40)
    assert most == 3
    assert [row["n"] for row in table(tmp_path, city=pa.string())] == list(range(40))


def test_a_folder_keeps_its_partitions(tmp_path: Path) -> None:
    plain = task(tmp_path / "plain", "")
    plain.put(cities("x"))
    stop(plain, 1)
    with pytest.raises(ManifestError, match=r"is partitioned by nothing, expected .*city"):
        task(tmp_path / "plain", "city")
    task(tmp_path / "by", "city")
    for other in ("", "n", "city,n"):
        with pytest.raises(ManifestError, match="so give the connector another name and path"):
            task(tmp_path / "by", other)
    task(tmp_path / "by", "city")


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("partition.by", "day=%Y-%j", "expected the name of a field, or NAME=PATTERN"),
        ("partition.by", "=%Y", "expected the name of a field"),
        ("partition.by", "day=x", "expected the name of a field"),
        ("partition.by", "city,city", "city stands there twice"),
        ("partition.by", "city,City", "city stands there twice, in another spelling"),
        ("partition.by", "day,Day=%Y", "day stands there twice, in another spelling"),
        ("partition.by", "city,_n", "_n begins with _, expected another first character"),
        ("partition.by", ".day=%Y", ".day begins with ., expected another first character"),
        ("topics", "t, _t", "topic _t begins with _, expected another first character"),
        ("partition.timezone", "Mars/Base", "time zone Mars/Base, expected"),
    ],
)
def test_settings_that_are_refused(key: str, text: str, expected: str) -> None:
    faults = DirectorySink.validate({"path": "out", key: text})
    assert expected in faults[key][0]


@pytest.mark.parametrize("topic", ["_t", ".t"])
def test_a_topic_of_a_pattern_that_readers_would_hide_is_refused(
    tmp_path: Path, topic: str
) -> None:
    subject = task(tmp_path, "")
    with pytest.raises(ConfigError, match=f"topic {topic} begins with"):
        subject.open([(topic, 0)])


def test_escapes_are_those_of_spark() -> None:
    assert escaped("a/b=%\n") == "a%2Fb%3D%25%0A"


# -- kills --


def lives(folder: Path, chance: random.Random, count: int) -> int:
    """Tasks that are killed one after the other until one reaches the end; how many there were."""
    for life in range(1, 200):
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, chance.randint(5, 120))
            try:
                subject = task(folder, "city", rotate_records=4, open_max=chance.randint(2, 6))
                at = subject.context.seeks.get(PLACE, 0)  # type: ignore[attr-defined]
                while at < count:
                    size = chance.randint(1, 5)
                    batch = [f"c{n % 5}" for n in range(at, min(at + size, count))]
                    subject.put(cities(*batch, first=at))
                    at += len(batch)
                stop(subject, count)
            except Killed:
                continue
        return life
    raise AssertionError("no life reached the end")


@pytest.mark.parametrize("seed", range(tries(8, 150)))
def test_killed_at_any_step_each_record_is_there_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lives(tmp_path, chance, 60)
    found = table(tmp_path, city=pa.string())
    assert found == [{"n": n, "city": f"c{n % 5}"} for n in range(60)]
    entries = [json.loads(p.read_bytes()) for p in (tmp_path / "_headgate").glob("t-0-*.json")]
    files = Counter(
        file for e in entries for file, _ in ((e["file"], e["staged"]), *e.get("more", ()))
    )
    assert set(files) == {str(p.relative_to(tmp_path)) for p in tmp_path.glob("city=*/*.parquet")}
