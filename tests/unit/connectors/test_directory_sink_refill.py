"""A DirectorySink whose files were deleted says so, and writes them again, each record once,
whenever it is killed."""

import csv
import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.depth import tries
from support.task.body_bench import BodyBench
from support.task.killed_sink import Killed, kill_at
from support.task.sink_records import committed

from headgate.connector import Schema
from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.log.retention import parse_limits
from headgate.ports import LogBatch, TransportError
from headgate.task.messages import TaskKind, TaskOutcome
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types, rows
from headgate_connectors.directory_sink import DirectorySinkTask
from headgate_connectors.output.folder_columns import SinkColumns
from headgate_connectors.output.manifest import ManifestError
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.database import Database
from headgate_embedded.retention import Retention
from headgate_embedded.schema import FILE_NAME

ROW = s.struct({"n": s.INT64, "city": s.STRING})
PLACE = ("t", 0)


def task(folder: Path, by_group: int = 0, **settings: Any) -> DirectorySinkTask:
    """A task that is open. `log` among the settings are the offsets that the log has, and `reports`
    whether it reports records."""
    made = DirectorySinkTask()
    group, reports = {PLACE: by_group} if by_group else None, settings.pop("reports", False)
    known = FakeSinkContext(committed=group, reports=reports)
    made.context = known
    if (log := settings.pop("log", None)) is not None:
        known.log_offsets[PLACE] = log
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    base = {"name": "sink", "path": str(folder), "rotate.interval.ms": "600000"}
    made.start({**base, "rotate.records": "4", **config})
    made.open([PLACE])
    return made


def context(subject: DirectorySinkTask) -> FakeSinkContext:
    assert isinstance(subject.context, FakeSinkContext)
    return subject.context


def record(n: int, schema: Schema = ROW) -> SinkRecord:
    value = {field.name: f"c{n % 3}" if field.name == "city" else n for field in schema.fields}
    return SinkRecord("t", 0, n, None, value, (), 0, None, schema)


class Log:
    """Delivers records `first` to before `end`, from wherever the task asks."""

    def __init__(self, first: int, end: int, chance: random.Random | None = None) -> None:
        self.first, self.end = first, end
        self._chance = chance or random.Random(0)
        self.make: Callable[[int], SinkRecord] = record

    def deliver(self, subject: DirectorySinkTask, stops: bool = True) -> None:
        seeks = context(subject).seeks
        at = self.first
        while True:
            at = max(seeks.pop(PLACE, at), self.first)
            if at >= self.end:
                break
            end = min(at + self._chance.randint(1, 5), self.end)
            subject.put([self.make(n) for n in range(at, end)])
            at = end
        if stops:
            context(subject).stopping = True
            subject.pre_commit({PLACE: self.end})
            assert not seeks


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("t-0-*.*") if "_headgate" not in p.parts)


def numbers(folder: Path) -> list[int]:
    found: list[int] = []
    for path in files(folder):
        if path.suffix == ".parquet":
            found += pq.read_table(path, partitioning=None)["n"].to_pylist()
        elif path.suffix == ".arrow":
            found += pa.ipc.open_file(path).read_all()["n"].to_pylist()
        elif path.suffix == ".csv":
            found += [int(row["n"]) for row in csv.DictReader(path.open())]
        else:
            found += [json.loads(line)["n"] for line in path.read_text().splitlines()]
    return sorted(found)


def write(folder: Path, count: int, **settings: Any) -> None:
    Log(0, count).deliver(task(folder, **settings))
    assert numbers(folder) == list(range(count))


# -- at the start --


def test_what_is_gone_and_both_ways_on_are_told(tmp_path: Path) -> None:
    write(tmp_path, 20)
    gone = files(tmp_path)[1:3]
    for path in gone:
        path.unlink()
    with pytest.raises(ManifestError) as told:
        task(tmp_path)
    text = str(told.value)
    assert f"2 committed files are gone from {tmp_path}, with" in text
    assert "on.missing.output = rewrite" in text and "on.missing.output = accept" in text


def test_the_file_that_is_named_is_one_that_is_gone(tmp_path: Path) -> None:
    """Files of one entry stand in several folders."""
    settings = {"partition_by": "city", "partition_keep_columns": "true"}
    write(tmp_path, 5, **settings)
    gone = f"city=c2/{files(tmp_path / 'city=c2')[0].name}"
    (tmp_path / gone).unlink()
    with pytest.raises(ManifestError, match=f"such as {gone}: "):
        task(tmp_path, **settings)
    with pytest.raises(ManifestError, match=f"^{gone} is gone and cannot be written anew"):
        task(tmp_path, on_missing_output="rewrite", format="csv", **settings)


@pytest.mark.parametrize("by", ["", "city"])
@pytest.mark.parametrize("format", ["parquet", "arrow", "csv", "jsonl"])
def test_deleted_files_are_written_anew_and_the_others_stay(
    tmp_path: Path, format: str, by: str
) -> None:
    settings = {"format": format, "partition_by": by, "partition_keep_columns": "true"}
    write(tmp_path, 30, **settings)
    before = {path: path.read_bytes() for path in files(tmp_path)}
    kept = files(tmp_path)[::2]
    for path in set(before) - set(kept):
        path.unlink()
    times = [path.stat().st_mtime_ns for path in kept]
    Log(0, 34).deliver(task(tmp_path, on_missing_output="rewrite", **settings))
    assert numbers(tmp_path) == list(range(34))
    assert [path.stat().st_mtime_ns for path in kept] == times
    if format != "parquet":
        assert {path: path.read_bytes() for path in before} == before
    task(tmp_path, **settings)  # nothing is missing any more
    assert not list((tmp_path / "_headgate" / "staging").iterdir())


def test_no_offset_is_committed_while_files_are_written_anew(tmp_path: Path) -> None:
    """The records are before the group's offset, which would go back and forth."""
    write(tmp_path, 20)
    files(tmp_path)[0].unlink()
    subject = task(tmp_path, on_missing_output="rewrite")
    assert context(subject).seeks == {PLACE: 0}
    subject.put([record(0)])
    assert subject.pre_commit({PLACE: 1}) == {}
    context(subject).stopping = True
    assert subject.pre_commit({PLACE: 1}) == {}


def test_what_the_log_has_no_more_is_told_and_missed_once(tmp_path: Path) -> None:
    """The file is there again, without those rows: so that the next start misses nothing."""
    write(tmp_path, 20, rotate_records=5)
    for path in files(tmp_path)[:3]:
        path.unlink()
    log = Log(8, 24)
    subject = task(tmp_path, on_missing_output="rewrite")
    log.deliver(subject)
    found = numbers(tmp_path)
    assert found == [n for n in range(24) if n >= 8]
    told = [one for one in context(subject).logged if "written anew;" in one]
    assert told[0].startswith("0 records of t-0 from offset 0 to")
    assert sum(int(one.split()[0]) for one in told) < sum(int(one.split()[-1]) for one in told)
    task(tmp_path)
    for path in files(tmp_path):
        pq.read_table(path)


def test_a_column_that_came_in_the_middle_of_a_file_is_in_all_its_rows(tmp_path: Path) -> None:
    """The connector's schemas were different when the file was first written, so the file has more
    columns now."""
    write(tmp_path, 8, rotate_records=8)
    files(tmp_path)[0].unlink()
    more = s.struct({"n": s.INT64, "city": s.STRING, "more": s.INT64})
    log = Log(0, 8)
    log.make = lambda n: record(n, more if n > 4 else ROW)
    log.deliver(task(tmp_path, on_missing_output="rewrite", rotate_records=8))
    (path,) = files(tmp_path)
    assert pq.read_table(path)["more"].to_pylist() == [None] * 5 + [5, 6, 7]


def test_a_folder_that_is_gone_is_written_anew(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, 20)
    shutil.rmtree(out)
    with pytest.raises(ManifestError, match="offset 20: put back what is gone"):
        task(out, by_group=20)
    Log(0, 22).deliver(task(out, by_group=20, on_missing_output="rewrite"))
    assert numbers(out) == list(range(22))


def test_files_of_another_format_are_not_written_anew(tmp_path: Path) -> None:
    write(tmp_path, 5, format="csv")
    files(tmp_path)[0].unlink()
    with pytest.raises(ManifestError, match=r"cannot be written anew by a sink that writes \.parq"):
        task(tmp_path, on_missing_output="rewrite")


def test_a_record_that_is_of_another_folder_now_is_told(tmp_path: Path) -> None:
    """Otherwise the record would be left out, or be in two files."""
    write(tmp_path, 5, partition_by="city")
    shutil.rmtree(tmp_path / "city=c0")
    log = Log(0, 5)
    log.make = lambda n: SinkRecord("t", 0, n, None, {"n": n, "city": "other"}, (), 0, None, ROW)
    with pytest.raises(ManifestError, match="offset 0 is of folder city=other, in which"):
        log.deliver(task(tmp_path, on_missing_output="rewrite", partition_by="city"))


def test_a_record_that_was_refused_and_is_taken_now_is_told(tmp_path: Path) -> None:
    """The record's dead letter may have been used meanwhile. With the former setting the rewrite
    succeeds."""
    narrow = s.struct({"n": s.INT32, "city": s.STRING})
    log = Log(0, 5)
    log.make = lambda n: record(n, narrow if n in (1, 4) else ROW)  # all those of one city
    settings = {"partition_by": "city", "reports": True}
    subject = task(tmp_path, **settings)
    log.deliver(subject)
    assert [one.offset for one, _ in context(subject).reported] == [1, 4]
    shutil.rmtree(tmp_path / "city=c0")
    settings["on_missing_output"] = "rewrite"
    with pytest.raises(ManifestError) as told:
        log.deliver(task(tmp_path, schema_evolution="widen", **settings))
    text = str(told.value)
    assert "offset 1 is of folder city=c1" in text and "dead letter" in text
    assert "schema.evolution" in text and "columns.types" in text and "Undo the change" in text
    log.deliver(task(tmp_path, **settings))
    assert numbers(tmp_path) == [0, 2, 3]


def test_a_task_whose_staged_files_were_dropped_fills_anew(tmp_path: Path) -> None:
    write(tmp_path, 12)
    for path in files(tmp_path)[:2]:
        path.unlink()
    subject = task(tmp_path, on_missing_output="rewrite")
    subject.put([record(0), record(1)])
    task(tmp_path, on_missing_output="rewrite")  # drops what is staged at that offset
    assert not list((tmp_path / "_headgate" / "staging").iterdir())
    Log(0, 12).deliver(subject)
    assert numbers(tmp_path) == list(range(12))


def test_of_two_tasks_that_fill_a_file_one_does(tmp_path: Path) -> None:
    write(tmp_path, 12)
    files(tmp_path)[0].unlink()
    one, other = (task(tmp_path, on_missing_output="rewrite") for _ in range(2))
    log = Log(0, 12)
    log.deliver(other)
    seen = files(tmp_path)[0].stat()
    log.deliver(one)
    assert numbers(tmp_path) == list(range(12))
    assert files(tmp_path)[0].stat().st_ino == seen.st_ino


# -- while it runs --


def half_way(folder: Path, **settings: Any) -> DirectorySinkTask:
    subject = task(folder, **settings)
    Log(0, 10).deliver(subject, stops=False)
    return subject


@pytest.mark.parametrize("whole", [False, True])
def test_files_that_go_while_it_runs_are_told(tmp_path: Path, whole: bool) -> None:
    out = tmp_path / "out"
    subject = half_way(out)
    if whole:
        shutil.rmtree(out)
    else:
        for path in files(out):
            path.unlink()
    seen = "committed its records up to" if whole else "committed files are gone from"
    with pytest.raises(ManifestError, match=f"{seen}.*on.missing.output = rewrite"):
        Log(10, 20).deliver(subject)
    assert not files(out)


@pytest.mark.parametrize("whole", [False, True])
def test_files_that_go_while_it_runs_are_written_anew(tmp_path: Path, whole: bool) -> None:
    out = tmp_path / "out"
    subject = half_way(out, on_missing_output="rewrite")
    if whole:
        shutil.rmtree(out)
    else:
        for path in files(out):
            path.unlink()
    log = Log(10, 20)
    subject.put([record(n) for n in range(10, 14)])
    log.first = 0
    log.deliver(subject)
    assert numbers(out) == list(range(20))
    assert SinkColumns(out).known() == ROW  # so that later files have the same types


@pytest.mark.parametrize("whole", [False, True])
def test_files_that_go_while_it_runs_are_accepted(tmp_path: Path, whole: bool) -> None:
    """Records that were in no committed file yet are read again."""
    out = tmp_path / "out"
    subject = half_way(out, on_missing_output="accept")
    kept = numbers(out)
    if whole:
        shutil.rmtree(out)
    else:
        for path in files(out):
            path.unlink()
    subject.put([record(n) for n in range(10, 14)])
    assert context(subject).seeks == {PLACE: kept[-1] + 1}
    Log(0, 20).deliver(subject)
    assert numbers(out) == list(range(kept[-1] + 1, 20))


# -- kills --

SHAPES: Sequence[dict[str, str]] = [
    {"format": "parquet"},
    {"format": "csv", "partition.by": "city", "partition.keep.columns": "true"},
    {"format": "jsonl"},
]


@pytest.mark.parametrize("seed", range(tries(9, 200)))
def test_killed_at_any_step_of_a_rewrite_each_record_is_there_once(
    tmp_path: Path, seed: int
) -> None:
    """Files, or the whole folder, are deleted again and again."""
    chance = random.Random(seed)
    out, shape = tmp_path / "out", SHAPES[seed % len(SHAPES)]
    log, kills = Log(0, 40, chance), 0
    for life in range(30):
        if out.exists() and chance.random() < 0.1:
            shutil.rmtree(out)
        for path in files(out):
            if chance.random() < 0.2:
                path.unlink()
        with pytest.MonkeyPatch.context() as patch:
            if life < 29:
                kill_at(patch, chance.randint(3, 80))
            try:
                settings = {**shape, "on.missing.output": "rewrite"}
                log.deliver(task(out, by_group=40 if life else 0, **settings))
            except Killed:
                kills += 1
    assert numbers(out) == list(range(40))
    assert kills > 3
    task(out, by_group=40, **shape)


# -- in batches, on the embedded log --


def fill(folder: Path, start: int, end: int) -> None:
    table = pa.table({"n": pa.array(range(start, end), pa.int64())})
    columns = arrow_types.struct_schema(table.schema)
    values = rows.record_batch(table.cast(arrow_types.arrow_schema(columns)))
    batch = LogBatch(
        *("t", 0, table.num_rows, None, (), 5),
        *(rows.schema_bytes(columns), rows.to_bytes(values)),
    )
    with closing(open_transport(transport_settings(folder))) as transport:
        transport.record_log.create_topic("t", 1)
        producer = transport.record_log.producer("test", None, None)
        producer.send_batch(batch)
        producer.acks()


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_deleted_files_are_written_anew_from_batches(tmp_path: Path, format: str) -> None:
    out = tmp_path / "out"
    config = {"topics": "t", "value.converter": "TypedConverter", "name": "sink", "format": format}
    config |= {"path": str(out), "rotate.records": "7", "rotate.interval.ms": "100"}

    def run(end: int, **more: str) -> BodyBench:
        given = {**config, **more}
        subject = BodyBench(tmp_path, DirectorySinkTask, given, kind=TaskKind.SINK).start()
        subject.until(lambda: committed(tmp_path).get(PLACE) == end)
        return subject

    fill(tmp_path, 0, 30)
    fill(tmp_path, 30, 40)
    assert run(40).stop().outcome is TaskOutcome.STOPPED
    assert numbers(out) == list(range(40))
    for path in files(out)[1:4]:
        path.unlink()
    fill(tmp_path, 40, 50)
    subject = run(50, **{"on.missing.output": "rewrite"})
    assert subject.stop().outcome is TaskOutcome.STOPPED
    assert numbers(out) == list(range(50))


# -- what the log has no more, which no record tells --


def deleted(folder: Path, rows: int = 6, end: int = 8) -> None:
    """A file of records 0 to before `end`, of which those from `rows` on were tombstones."""
    subject = task(folder, on_null_value="skip", rotate_records=100)
    nulls = [SinkRecord("t", 0, n, None, None, (), 0) for n in range(rows, end)]
    subject.put([*(record(n) for n in range(rows)), *nulls])
    context(subject).stopping = True
    assert subject.pre_commit({PLACE: end}) == {PLACE: end}
    (path,) = files(folder)
    path.unlink()


def rewriting(folder: Path, *left: int) -> DirectorySinkTask:
    """A task that rewrites, of whose log these offsets are left."""
    settings = {"on_missing_output": "rewrite", "on_null_value": "skip", "rotate_records": 100}
    subject = task(folder, by_group=8, log=left, **settings)
    assert context(subject).seeks == {PLACE: left[0] if left else 8}
    assert context(subject).timeout_ms is not None  # a log without records calls nobody
    return subject


def wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time pass as if the log had given no record for a while."""
    now = time.monotonic() + 1.5
    monkeypatch.setattr(time, "monotonic", lambda: now)


@pytest.mark.parametrize("left", [(), (2, 3), range(6)])
def test_a_rewrite_ends_where_the_log_has_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: Sequence[int]
) -> None:
    """Compaction took the tombstones at the end, or retention everything; nothing newer came."""
    deleted(tmp_path)
    subject = rewriting(tmp_path, *left)
    subject.put([record(n) for n in left])
    assert not files(tmp_path)  # the log is not asked at once
    wait(monkeypatch)
    subject.put([])
    assert numbers(tmp_path) == list(left)
    told = f"{len(left)} records of t-0 from offset 0 to 7 were written anew"
    assert any(told in one for one in context(subject).logged)
    assert context(subject).seeks == {PLACE: 8}
    subject.stop()
    subject = task(tmp_path, by_group=8)
    subject.put([record(8)])
    context(subject).stopping = True
    assert subject.pre_commit({PLACE: 9}) == {PLACE: 9}
    assert numbers(tmp_path) == [*left, 8]


def test_a_rewrite_waits_for_what_the_log_still_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted(tmp_path)
    subject = rewriting(tmp_path, *range(6))
    subject.put([record(n) for n in range(4)])
    wait(monkeypatch)
    subject.put([])
    context(subject).stopping = True
    assert subject.pre_commit({PLACE: 4}) == {}
    assert not files(tmp_path)


def test_a_log_out_of_reach_ends_no_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted(tmp_path)
    subject = rewriting(tmp_path)

    def fails(*_args: object) -> int:
        raise TransportError("no broker")

    monkeypatch.setattr(subject.context, "first_record", fails)
    wait(monkeypatch)
    subject.put([])
    assert not files(tmp_path)


def test_a_rewrite_ends_as_the_task_stops_where_the_log_has_no_more(tmp_path: Path) -> None:
    deleted(tmp_path)
    subject = rewriting(tmp_path, *range(6))
    subject.put([record(n) for n in range(6)])
    assert subject.pre_commit({PLACE: 6}) == {}
    context(subject).stopping = True
    assert subject.pre_commit({PLACE: 6}) == {}  # the group is at 8, and stays there
    assert numbers(tmp_path) == list(range(6))


def test_a_rewrite_ends_behind_records_that_a_transform_drops(tmp_path: Path) -> None:
    """The sink never sees them, only that they were delivered. The log still has them."""
    deleted(tmp_path)
    subject = rewriting(tmp_path, *range(9))
    assert subject.pre_commit({PLACE: 8}) == {}  # which was delivered before
    subject.put([record(n) for n in range(6)])
    assert subject.pre_commit({PLACE: 7}) == {}
    assert subject.pre_commit({PLACE: 9}) == {PLACE: 8}
    assert numbers(tmp_path) == list(range(6))
    assert context(subject).seeks == {PLACE: 8}


def test_a_rewrite_ends_where_retention_took_all(tmp_path: Path) -> None:
    """The rewrite ends on the embedded log without a later record."""
    out = tmp_path / "out"
    config = {"topics": "t", "value.converter": "TypedConverter", "name": "sink"}
    config |= {"path": str(out), "rotate.records": "10", "rotate.interval.ms": "100"}
    fill(tmp_path, 0, 20)
    subject = BodyBench(tmp_path, DirectorySinkTask, config, kind=TaskKind.SINK).start()
    subject.until(lambda: committed(tmp_path).get(PLACE) == 20)
    subject.stop()
    assert len(files(out)) == 2
    for path in files(out):
        path.unlink()
    clock = count(10**6, 10**6)
    with closing(Database(tmp_path / FILE_NAME)) as log:
        limits = parse_limits({"retention.ms": "1"})
        retention = Retention(log, limits, lambda _config: False, {}, lambda: next(clock))
        # A pass notes when records came, and takes those that came long ago.
        assert [*retention.run().removed, *retention.run().removed]
    given = {**config, "on.missing.output": "rewrite"}
    subject = BodyBench(tmp_path, DirectorySinkTask, given, kind=TaskKind.SINK).start()
    subject.until(lambda: len(files(out)) == 2)
    assert subject.stop().outcome is TaskOutcome.STOPPED
    assert numbers(out) == []
