"""The commits of a folder that SparkSink writes: who was first, and who was killed."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.connector import DataError
from headgate_connectors.tables.columns import Evolution
from headgate_connectors.tables.sink import Batch, TableError
from headgate_spark.files import LocalFiles
from headgate_spark.folder_log import FolderError
from headgate_spark.sink_target import FolderTarget, WriteMode
from headgate_spark.spark_sink import SparkSink

PLACE = ("t", 0)


class Writer:
    """Writes as Spark does: files in folders by column, a mark of success, a checksum."""

    format = "parquet"

    def __init__(self) -> None:
        self.before_commit: Any = lambda: None
        self.written = 0

    sql = ""

    def select(self, table: Any) -> Any:
        return table

    def write(self, table: Any, path: str) -> None:
        folder = Path(path.removeprefix("file://"))
        for number in table.column("n").to_pylist():
            place = folder / f"odd={number % 2}"
            place.mkdir(parents=True, exist_ok=True)
            row = table.filter(pa.compute.equal(table.column("n"), number))
            pq.write_table(row, place / f"part-{folder.name}-{number}.parquet")
        (folder / "_SUCCESS").touch()
        (folder / ".part.crc").touch()
        self.written += 1
        self.before_commit()

    def close(self) -> None: ...


def target(
    root: Path,
    name: str = "sink",
    evolution: Evolution = Evolution.NONE,
    mode: WriteMode = WriteMode.APPEND,
) -> FolderTarget:
    made = FolderTarget(Writer(), root, name, evolution, mode)  # type: ignore[arg-type]
    made.read()
    return made


def batch(start: int | None, numbers: Sequence[int], place: tuple[str, int] = PLACE) -> Batch:
    data = pa.table({"n": pa.array(numbers, pa.int64())})
    return Batch(data, {place: start}, {place: numbers[-1] + 1})


def numbers(root: Path) -> list[int]:
    files = [path for path in root.rglob("*.parquet") if "_headgate" not in path.parts]
    return sorted(n for path in files for n in pq.read_table(path)["n"].to_pylist())


def test_spark_is_given_a_folder_as_it_is_named(tmp_path: Path) -> None:
    """It takes no escapes: k%C3%B6ln was another folder."""
    root = tmp_path / "k\u00f6ln 100%20#"
    assert target(root).commit(batch(None, [0, 1]))
    assert numbers(root) == [0, 1]
    assert list(tmp_path.iterdir()) == [root]


def test_of_two_with_the_same_records_one_commits(tmp_path: Path) -> None:
    late, owner = target(tmp_path), target(tmp_path)
    late._writer.before_commit = lambda: owner.commit(batch(None, [0, 1, 2]))  # type: ignore[attr-defined]
    assert late.commit(batch(None, [0, 1])) is False
    assert numbers(tmp_path) == [0, 1, 2] and late.reached(PLACE) == 3
    assert list((tmp_path / "_headgate/staging").iterdir()) == []


@pytest.mark.parametrize("when", ["being written", "written", "looked at", "staged"])
def test_a_zombie_whose_files_were_dropped_finds_who_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """And does not blame its executors for it."""
    late = target(tmp_path)

    def others() -> None:
        target(tmp_path).commit(batch(None, [0, 1, 2]))
        target(tmp_path)

    def fails() -> None:
        (staging,) = (tmp_path / "_headgate/staging").iterdir()
        others()
        staging.mkdir()  # by an executor that is still writing
        raise TableError("Spark did not write the batch: there is no such folder")

    walk, looks = Path.rglob, [others]

    def walked(folder: Path, pattern: str) -> Iterator[Path]:
        for found in walk(folder, pattern):
            if looks:
                looks.pop()()
            yield found

    if when == "written":
        late._writer.before_commit = others  # type: ignore[attr-defined]
    elif when == "being written":
        late._writer.before_commit = fails  # type: ignore[attr-defined]
    elif when == "looked at":
        monkeypatch.setattr(Path, "rglob", walked)
    else:
        made = late._log._durable
        monkeypatch.setattr(late._log, "_durable", lambda staging: (others(), made(staging))[1])
    assert late.commit(batch(None, [0, 1])) is False
    assert numbers(tmp_path) == [0, 1, 2] and late.reached(PLACE) == 3
    assert list((tmp_path / "_headgate/staging").iterdir()) == []


def test_a_commit_of_other_partitions_in_between_costs_nothing(tmp_path: Path) -> None:
    one, other = target(tmp_path), target(tmp_path)
    one._writer.before_commit = lambda: other.commit(batch(None, [10, 11], ("t", 1)))  # type: ignore[attr-defined]
    assert one.commit(batch(None, [0, 1]))
    assert numbers(tmp_path) == [0, 1, 10, 11]
    assert one._writer.written == 1, "the files were written once"  # type: ignore[attr-defined]


def test_what_executors_wrote_to_a_folder_of_another_machine_is_not_committed(
    tmp_path: Path,
) -> None:
    """Spark still leaves its mark of success in the folder of this machine."""
    subject = target(tmp_path / "ours")
    there = Writer()

    def write(table: Any, path: str) -> None:
        there.write(table, path.replace("/ours/", "/theirs/"))
        (Path(path.removeprefix("file://")) / "_SUCCESS").touch()

    subject._writer.write = write  # type: ignore[method-assign]
    with pytest.raises(TableError, match=r"has nothing of it: its executors have another folder"):
        subject.commit(batch(None, [0, 1]))
    assert numbers(tmp_path / "ours") == []
    assert target(tmp_path / "ours").reached(PLACE) is None


def test_a_writer_killed_between_commit_and_publication_is_finished(tmp_path: Path) -> None:
    subject = target(tmp_path)
    subject._log._publish = lambda _commit: None  # type: ignore[method-assign]
    assert subject.commit(batch(None, [0, 1, 2]))
    assert numbers(tmp_path) == []
    assert target(tmp_path).reached(PLACE) == 3
    assert numbers(tmp_path) == [0, 1, 2]


def test_what_was_staged_and_can_never_commit_is_dropped(tmp_path: Path) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    subject = target(tmp_path)
    subject._writer.before_commit = die  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        subject.commit(batch(None, [0]))
    staging = tmp_path / "_headgate/staging"
    target(tmp_path)
    assert len(list(staging.iterdir())) == 1, "its writer may be frozen, and commit it"
    target(tmp_path).commit(batch(None, [0, 1]))
    target(tmp_path)
    assert list(staging.iterdir()) == [] and numbers(tmp_path) == [0, 1]


def test_columns_are_pinned(tmp_path: Path) -> None:
    target(tmp_path).commit(batch(None, [0]))
    other = Batch(pa.table({"n": [1.5]}), {PLACE: 1}, {PLACE: 2})
    with pytest.raises(DataError, match="column n is of type double, expected int64"):
        target(tmp_path).commit(other)
    more = Batch(pa.table({"n": [1], "more": ["x"]}), {PLACE: 1}, {PLACE: 2})
    with pytest.raises(DataError, match="column more"):
        target(tmp_path).commit(more)
    assert target(tmp_path, evolution=Evolution.ADD_COLUMNS).commit(more)
    assert target(tmp_path).columns.names == ["n", "more"]


def test_a_folder_that_is_not_as_it_was_is_told(tmp_path: Path) -> None:
    target(tmp_path).commit(batch(None, [0]))
    target(tmp_path).commit(batch(1, [1]))
    with pytest.raises(FolderError, match=r"connector sink writes to .*, expected other"):
        target(tmp_path, "other")
    first = tmp_path / "_headgate/commit-000000000000.json"
    text = first.read_text()
    first.unlink()
    with pytest.raises(FolderError, match=r"commit-000000000000.json is gone: put it back"):
        target(tmp_path)
    first.write_text(json.dumps({**json.loads(text), "offsets": 5}))
    with pytest.raises(FolderError, match="is no commit of a batch"):
        target(tmp_path)


# -- what was there before --


def some_file(root: Path, name: str, *rows: int) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), path)


def old_files(root: Path) -> None:
    """As Spark leaves them."""
    some_file(root, "part-0-old.snappy.parquet", 100)
    some_file(root, "odd=1/part-1-old.parquet", 101, 102)
    for name in ("_SUCCESS", "._SUCCESS.crc", "odd=1/.part-1-old.parquet.crc"):
        (root / name).touch()


def test_an_append_leaves_what_was_there(tmp_path: Path) -> None:
    old_files(tmp_path)
    target(tmp_path).commit(batch(None, [0, 1]))
    assert numbers(tmp_path) == [0, 1, 100, 101, 102]


def test_an_overwrite_replaces_what_was_there_once(tmp_path: Path) -> None:
    """The files stay until there is a batch. What came after that is nobody's to remove."""
    old_files(tmp_path)
    subject = target(tmp_path, mode=WriteMode.OVERWRITE)
    assert numbers(tmp_path) == [100, 101, 102]
    subject.commit(batch(None, [0, 1]))
    assert numbers(tmp_path) == [0, 1]
    assert not (tmp_path / "_SUCCESS").exists()
    some_file(tmp_path, "later.parquet", 200)
    target(tmp_path, mode=WriteMode.OVERWRITE).commit(batch(2, [2]))
    assert numbers(tmp_path) == [0, 1, 2, 200]


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "part-0.orc",
        "parquet",
        ".hidden",
        "sub/part-0.parquet",
        "_delta_log/00.json",
        "_delta_log/00.parquet",
    ],
)
def test_an_overwrite_removes_nothing_but_files_of_rows(tmp_path: Path, name: str) -> None:
    old_files(tmp_path)
    subject = target(tmp_path, mode=WriteMode.OVERWRITE)
    some_file(tmp_path, name, 7)
    with pytest.raises(FolderError, match=f"{name} is not a file of rows"):
        target(tmp_path, mode=WriteMode.OVERWRITE)
    with pytest.raises(FolderError, match=f"{name} is not a file of rows"):
        subject.commit(batch(None, [0]))
    assert (tmp_path / name).exists() and (tmp_path / "part-0-old.snappy.parquet").exists()


@pytest.mark.parametrize("name", ["owner.json", "t-0-0.json", "t-0-000000000000.json"])
def test_an_overwrite_leaves_the_folder_of_another_sink_alone(tmp_path: Path, name: str) -> None:
    """As DirectorySink and SparkFileSink keep theirs: its rows would be gone for it."""
    old_files(tmp_path)
    (tmp_path / "_headgate/staging").mkdir(parents=True)
    (tmp_path / "_headgate" / name).touch()
    with pytest.raises(FolderError, match=f"{name} says that another sink writes to this folder"):
        target(tmp_path, mode=WriteMode.OVERWRITE)
    assert numbers(tmp_path) == [100, 101, 102]


def test_an_overwrite_follows_no_links(tmp_path: Path) -> None:
    some_file(tmp_path, "elsewhere/part-0.parquet", 7)
    root = tmp_path / "out"
    root.mkdir()
    (root / "odd=1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FolderError, match=r"odd=1 is not a file of rows"):
        target(root, mode=WriteMode.OVERWRITE)
    (root / "odd=1").unlink()
    (root / "part-0.parquet").symlink_to(tmp_path / "elsewhere/part-0.parquet")
    with pytest.raises(FolderError, match=r"part-0.parquet is not a file of rows"):
        target(root, mode=WriteMode.OVERWRITE)


def test_files_of_others_are_an_error_if_they_are_to_be(tmp_path: Path) -> None:
    old_files(tmp_path)
    with pytest.raises(TableError, match=r"not of this sink: odd=1/part-1-old.parquet and 1 more"):
        target(tmp_path, mode=WriteMode.ERROR)
    assert numbers(tmp_path) == [100, 101, 102]
    root = tmp_path / "empty"
    target(root, mode=WriteMode.ERROR).commit(batch(None, [0, 1]))
    target(root, mode=WriteMode.ERROR).commit(batch(2, [2]))
    assert numbers(root) == [0, 1, 2]


def test_files_that_another_task_publishes_meanwhile_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = LocalFiles.list
    others = [lambda: target(tmp_path).commit(batch(None, [0]))]

    def listed(files: LocalFiles, folder: str) -> Sequence[str]:
        if others:
            others.pop()()
        return made(files, folder)

    monkeypatch.setattr(LocalFiles, "list", listed)
    assert target(tmp_path, mode=WriteMode.ERROR).reached(PLACE) == 1


class Stopped(BaseException):
    """The process was killed."""


class Steps:
    """Calls `comes` before the step of this number among those that change files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, comes: Any) -> None:
        self.left, self._comes = number, comes
        for owner, name in (
            (os, "link"),
            (Path, "unlink"),
            (Path, "rename"),
            (Path, "mkdir"),
            (shutil, "rmtree"),
        ):
            monkeypatch.setattr(owner, name, self._stepped(getattr(owner, name)))

    def _stepped(self, made: Any) -> Any:
        def step(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self._comes()
            return made(*given, **named)

        return step


STEPS = 24


@pytest.mark.parametrize("number", range(1, STEPS + 1))
def test_an_overwrite_that_is_killed_at_any_step_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    old_files(tmp_path)

    def die() -> None:
        raise Stopped

    with monkeypatch.context() as patched:
        steps = Steps(patched, number, die)
        try:
            target(tmp_path, mode=WriteMode.OVERWRITE).commit(batch(None, [0, 1, 2]))
        except Stopped:
            assert number < STEPS
        else:
            assert number == STEPS and steps.left == 1, "each step was tried, none twice"
    heir = target(tmp_path, mode=WriteMode.OVERWRITE)
    if heir.reached(PLACE) is None:
        assert numbers(tmp_path) == [100, 101, 102]
        heir.commit(batch(None, [0, 1]))
    else:
        heir.commit(batch(3, [3]))
    assert numbers(tmp_path) == list(range(heir.reached(PLACE) or 0))


def test_a_file_whose_name_comes_again_is_replaced_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first that published it was killed at the end."""
    subject = target(tmp_path, mode=WriteMode.OVERWRITE)

    def same_names() -> None:
        (staging,) = (tmp_path / "_headgate/staging").iterdir()
        for path in staging.rglob("*.parquet"):
            some_file(tmp_path, str(path.relative_to(staging)), 100)

    def die(*_given: Any, **_named: Any) -> None:
        raise Stopped

    subject._writer.before_commit = same_names  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", die)
        with pytest.raises(Stopped):
            subject.commit(batch(None, [0, 1]))
    target(tmp_path)
    assert numbers(tmp_path) == [0, 1]


@pytest.mark.parametrize("number", range(1, STEPS + 1))
def test_an_overwrite_that_is_frozen_at_any_step_removes_nothing_of_its_heirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    old_files(tmp_path)

    def heir() -> None:
        one = target(tmp_path, mode=WriteMode.OVERWRITE)
        done = one.reached(PLACE)
        if done is None:
            assert one.commit(batch(None, [0, 1]))
            done = 2
        assert one.commit(batch(done, [done, done + 1]))

    with monkeypatch.context() as patched:
        Steps(patched, number, heir)
        late = target(tmp_path, mode=WriteMode.OVERWRITE)
        late.commit(batch(None, [0, 1, 2]))
    late.read()
    assert numbers(tmp_path) == list(range(late.reached(PLACE) or 0))


def test_modes_that_would_lose_rows_are_refused_by_name(tmp_path: Path) -> None:
    files = {"format": "parquet", "path": str(tmp_path)}
    for mode in WriteMode:
        assert SparkSink.validate({**files, "write.mode": mode}) == {}
    table = {"format": "jdbc", "delivery": "at_least_once"}
    assert SparkSink.validate({**table, "write.mode": "append"}) == {}
    for mode in (WriteMode.OVERWRITE, WriteMode.ERROR):
        (text,) = SparkSink.validate({**table, "write.mode": mode})["write.mode"]
        assert "needs delivery = exactly_once" in text and "Empty the target" in text
    assert (
        "without a word" in SparkSink.validate({**files, "write.mode": "ignore"})["write.mode"][0]
    )
    assert "DeltaSink" in SparkSink.validate({**files, "write.mode": "upsert"})["write.mode"][0]


def test_a_folder_tells_the_time_of_its_last_records(tmp_path: Path) -> None:
    """A sink compares it with the log's, which may have been made anew."""
    for start, time in ((None, 5), (1, 7), (2, None)):
        one = batch(start, [start or 0])
        assert target(tmp_path).commit(replace(one, times={} if time is None else {PLACE: time}))
        assert target(tmp_path).last_time(PLACE) == time


# -- configs --


def test_what_can_only_be_had_at_least_once_is_said(tmp_path: Path) -> None:
    found = SparkSink.validate({"format": "jdbc"})
    assert "set delivery = at_least_once" in found["delivery"][0]
    assert SparkSink.validate({"format": "jdbc", "delivery": "at_least_once"}) == {}
    assert "use DeltaSink" in SparkSink.validate({"format": "delta"})["delivery"][0]
    assert "path" in SparkSink.validate({"format": "parquet"})
    assert "path" in SparkSink.validate({"format": "parquet", "path": "s3://x/y"})
