"""Transforms change batches on their way through a task. Log, files and dead letters are those of
single records."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task.body_bench import BodyBench, source_offsets
from support.task.letters import LETTERS, headers_of, records_of
from support.task.sink_records import committed
from support.task.transforms import CAST_TEXT, Keeps

from headgate.connector.batches import SinkBatch
from headgate.connector.transforms import make_transforms
from headgate.ports import ConsumerRecord
from headgate.task.messages import TaskKind
from headgate_connectors.directory import DirectoryTask
from headgate_connectors.directory_sink import DirectorySinkTask
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.batches import decode_batch, is_batch
from headgate_runtime.tasks.sink_body import SinkPerformer
from headgate_runtime.tasks.source_body import SourcePerformer

THREE = {
    "transforms": "cut,cast,stamp",
    "transforms.cut.type": "ReplaceField$Value",
    "transforms.cut.exclude": "text",
    "transforms.cut.renames": "n:number",
    "transforms.cast.type": "Cast$Value",
    "transforms.cast.spec": "number:string,price:int32",
    "transforms.stamp.type": "InsertField$Value",
    "transforms.stamp.topic.field": "topic",
}
DROPS = {
    "transforms": "drop",
    "transforms.drop.type": "Filter",
    "transforms.drop.predicate": "tombstone",
    "transforms.drop.negate": "true",
    "predicates.tombstone.type": "RecordIsTombstone",
}
TYPED = {"value.converter": "TypedConverter", "topic": "t"}


def write(folder: Path, bad: Sequence[int] = ()) -> Path:
    folder.mkdir()
    texts = ["x" if n in bad else str(n) for n in range(3000)]
    columns = {"n": range(3000), "price": [n / 4 for n in range(3000)], "text": texts}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder


def read(folder: Path, source: Path, config: Mapping[str, str], *, by_record: bool) -> BodyBench:
    config = {"path": str(source), **TYPED, **config}
    chain = [*make_transforms(config), *([Keeps()] if by_record else [])]
    bench = BodyBench(folder, DirectoryTask, config, chain=chain)
    bench.start().until(lambda: bench.progress.idle or bench.ended)
    bench.stop()
    return bench


def rows_in_batches(folder: Path) -> int:
    with (
        closing(open_transport(transport_settings(folder))) as transport,
        transport._database.read() as connection,
    ):
        found = [one for (one,) in connection.execute("select data from batches")]
    return sum(decode_batch("t", 0, 0, one).count for one in found if is_batch(one))


def counted(bench: BodyBench) -> Any:
    """Records, those skipped, and why, without the place: of a poll the first is told."""
    progress = bench.progress
    return progress.records, progress.skipped, progress.detail.partition("(")[0]


def told(record: ConsumerRecord) -> Any:
    return record.key, record.value, record.headers, record.partition


CASES = pytest.mark.parametrize(
    ("config", "count", "at_once"),
    [(THREE, 3000, 3000), (DROPS, 0, 0), (CAST_TEXT, 2998, 1000)],
    ids=["three", "drops", "fails"],
)


@CASES
def test_the_log_is_the_same_either_way(
    tmp_path: Path, config: dict[str, str], count: int, at_once: int
) -> None:
    source = write(tmp_path / "in", bad=(7, 2999))
    ways = [tmp_path / "batches", tmp_path / "records"]
    benches = [read(way, source, config, by_record=way is ways[1]) for way in ways]
    sent, expected = ([told(one) for one in records_of(way, "t")] for way in ways)
    assert sent == expected
    assert len(sent) == count
    assert source_offsets(ways[0]) == source_offsets(ways[1])
    assert [rows_in_batches(way) for way in ways] == [at_once, 0]
    assert counted(benches[0]) == counted(benches[1])


def test_letters_of_a_batch_are_those_of_its_bad_rows(tmp_path: Path) -> None:
    source = write(tmp_path / "in", bad=(7, 2999))
    ways = [tmp_path / "batches", tmp_path / "records"]
    for way in ways:
        read(way, source, CAST_TEXT, by_record=way is ways[1])
    letters, expected = (records_of(way, "letters") for way in ways)
    assert [one.value for one in letters] == [one.value for one in expected]
    assert len(letters) == 2
    for letter, other in zip(letters, expected, strict=True):
        found = dict(headers_of(letter))
        assert found == {**headers_of(other), **found}
        assert found["__connect.errors.class.name"].endswith("Cast$Value")


# -- sinks --


def write_out(folder: Path, name: str, config: Mapping[str, str], *, by_record: bool) -> BodyBench:
    config = {
        "path": str(folder / name),
        "name": "c",
        "rotate.interval.ms": "100",
        "topics": "t",
        **TYPED,
        **config,
    }
    chain = [*make_transforms(config), *([Keeps()] if by_record else [])]
    with closing(open_transport(transport_settings(folder))) as transport:
        transport.record_log.commit_unguarded("connect-c", {("t", 0): None})
    bench = BodyBench(folder, DirectorySinkTask, config, kind=TaskKind.SINK, chain=chain)
    bench.start().until(lambda: committed(folder).get(("t", 0)) == 3000 or bench.ended)
    bench.stop()
    return bench


@CASES
def test_the_files_are_the_same_either_way(
    tmp_path: Path,
    config: dict[str, str],
    count: int,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[int] = []
    put_batch = DirectorySinkTask.put_batch

    def put(task: DirectorySinkTask, batch: SinkBatch) -> None:
        given.append(batch.count)
        put_batch(task, batch)

    monkeypatch.setattr(DirectorySinkTask, "put_batch", put)
    read(tmp_path, write(tmp_path / "in", bad=(7, 2999)), {}, by_record=False)
    ways = ["batches", "records"]
    benches = [
        write_out(tmp_path, way, {**config, LETTERS: ""}, by_record=way == "records")
        for way in ways
    ]
    found, expected = (
        [pq.read_table(path) for path in sorted((tmp_path / way).glob("*.parquet"))] for way in ways
    )
    assert found == expected
    assert sum(table.num_rows for table in found) == count
    assert sum(given) == (3000 if config is THREE else 0)
    assert counted(benches[0]) == counted(benches[1])


def test_rows_of_a_dropped_batch_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that found only such rows has found something."""
    counts: list[tuple[type, int, int]] = []

    def watch(performer: type, name: str) -> None:
        call = getattr(performer, name)

        def called(self: Any, *arguments: Any) -> Any:
            outcome = call(self, *arguments)
            if outcome.dropped:
                counts.append((performer, outcome.dropped, outcome.records))
            return outcome

        monkeypatch.setattr(performer, name, called)

    watch(SourcePerformer, "_poll")
    watch(SinkPerformer, "_consume")
    source = write(tmp_path / "in")
    read(tmp_path / "dropped", source, DROPS, by_record=False)
    assert counts == [(SourcePerformer, 3000, 0)]
    read(tmp_path, source, {}, by_record=False)
    write_out(tmp_path, "out", DROPS, by_record=False)
    assert counts[1:] == [(SinkPerformer, 3000, 0)]
