"""The commits of a folder that SparkSink writes: who was first, and who was killed."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.connector import DataError
from headgate_connectors.tables.columns import Evolution
from headgate_connectors.tables.sink import Batch, TableError
from headgate_spark.folder_log import FolderError
from headgate_spark.sink_target import FolderTarget
from headgate_spark.spark_sink import SparkSink

PLACE = ("t", 0)


class Writer:
    """Writes as Spark does: files in folders by column, a mark of success, a checksum."""

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


def target(root: Path, name: str = "sink", evolution: Evolution = Evolution.NONE) -> FolderTarget:
    made = FolderTarget(Writer(), root, name, evolution)  # type: ignore[arg-type]
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
    """Spark itself leaves its mark of success here all the same."""
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


def test_what_can_only_be_had_at_least_once_is_said(tmp_path: Path) -> None:
    found = SparkSink.validate({"format": "jdbc"})
    assert "set delivery = at_least_once" in found["delivery"][0]
    assert SparkSink.validate({"format": "jdbc", "delivery": "at_least_once"}) == {}
    assert "use DeltaSink" in SparkSink.validate({"format": "delta"})["delivery"][0]
    assert "path" in SparkSink.validate({"format": "parquet"})
    assert "path" in SparkSink.validate({"format": "parquet", "path": "s3://x/y"})
