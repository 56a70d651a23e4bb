"""The conformance suite on the connectors that come with Headgate, and on those of the examples."""

import json
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from support.task.iceberg_tables import catalog, config_of
from support.task.sink_suites import ParquetFolder, TwoPartitions

from headgate.testing import Message, SinkConformance, SourceConformance

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples" / "connector"))
from numbers_example import AppendSink, CountSource
from shortest_example import TableSink, TickSource

LINES = ["one", "two", "", "vier \u00e4", "five", "two"]


class TestFileStreamSource(SourceConformance):
    connector = "FileStreamSource"
    config: ClassVar = {"topic": "lines", "batch.size": "2"}

    def prepare(self, folder: Path) -> Mapping[str, str]:
        file = folder / "in.txt"
        file.write_text("".join(f"{line}\n" for line in LINES))
        return {"file": str(file)}

    def expected(self) -> list[str]:
        return LINES


class TestFileStreamSourceAtLeastOnce(TestFileStreamSource):
    exactly_once = False

    def test_survives_a_takeover_at_every_point(self) -> None:
        """Nothing shuts out a run that hung."""


class TestFileStreamSink(SinkConformance):
    connector = "FileStreamSink"

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {"file": str(folder / "out.txt")}

    def written(self, folder: Path) -> Sequence[str]:
        file = folder / "out.txt"
        return file.read_text().splitlines() if file.exists() else []


class TestDirectorySource(SourceConformance):
    connector = "DirectorySource"
    config: ClassVar = {
        "topic": "files",
        "batch.size": "2",
        "poll.interval.ms": "10",
        "file.settle.ms": "0",
    }

    def prepare(self, folder: Path) -> Mapping[str, str]:
        (folder / "a.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(4)))
        (folder / "below").mkdir()
        (folder / "below" / "b.csv").write_text("n,text\n1,one\n2,two\n3,three\n")
        return {"path": str(folder)}

    def bad_input(self, folder: Path) -> Mapping[str, str]:
        config = self.prepare(folder)
        with (folder / "a.jsonl").open("a") as file:
            file.write("{no json\n")
        return config


class TestDirectorySink(ParquetFolder, SinkConformance):
    connector = "DirectorySink"
    config: ClassVar = {"format": "parquet", "rotate.records": "2"}
    exactly_once = True


@pytest.mark.exhaustive
class TestDirectorySinkOfJsonLines(TestDirectorySink):
    config: ClassVar = {"format": "jsonl", "rotate.records": "4"}

    def written(self, folder: Path) -> list[object]:
        files = sorted((folder / "out").glob("*.jsonl"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return [json.loads(line) for line in lines]

    def messages(self) -> Sequence[Message]:
        return [Message(f"text {number}", partition=number % 3) for number in range(12)]


class TestDeltaSink(TwoPartitions, SinkConformance):
    connector = "DeltaSink"
    config: ClassVar = {"rotate.records": "2"}
    exactly_once = True

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {"path": str(folder / "table")}

    def written(self, folder: Path) -> list[object]:
        if not DeltaTable.is_deltatable(str(folder / "table")):
            return []
        rows = DeltaTable(folder / "table").to_pyarrow_table()
        return [row["value"] for row in rows.to_pylist()]


class TestDeltaSource(SourceConformance):
    connector = "DeltaSource"
    config: ClassVar = {
        "topic": "rows",
        "starting.version": "0",
        "batch.rows": "2",
        "poll.interval.ms": "10",
    }

    def prepare(self, folder: Path) -> Mapping[str, str]:
        for start in (0, 3):
            rows = pa.table({"n": [start, start + 1, start + 2]})
            write_deltalake(folder / "table", rows, mode="append")
        DeltaTable(folder / "table").optimize.compact()
        write_deltalake(folder / "table", pa.table({"n": [6]}), mode="append")
        return {"path": str(folder / "table")}

    def expected(self) -> list[object]:
        return [{"n": number} for number in range(7)]

    def bad_input(self, folder: Path) -> Mapping[str, str]:
        config = self.prepare(folder)
        before = set((folder / "table").glob("*.parquet"))
        write_deltalake(folder / "table", pa.table({"n": [7]}), mode="append")
        (file,) = set((folder / "table").glob("*.parquet")) - before
        file.write_bytes(b"x" * file.stat().st_size)
        return config


@pytest.mark.exhaustive
class TestDeltaSourceOfAWholeTable(TestDeltaSource):
    config: ClassVar = {"topic": "rows", "batch.rows": "2", "poll.interval.ms": "10"}

    def prepare(self, folder: Path) -> Mapping[str, str]:
        rows = pa.table({"n": range(6)})
        write_deltalake(folder / "table", rows)
        return {"path": str(folder / "table")}

    def expected(self) -> list[object]:
        return [{"n": number} for number in range(6)]


@pytest.mark.exhaustive  # 40 s; the Delta table above goes through the same task
class TestIcebergSource(SourceConformance):
    connector = "IcebergSource"
    config: ClassVar = {"topic": "rows", "batch.rows": "2", "poll.interval.ms": "10"}

    def prepare(self, folder: Path) -> Mapping[str, str]:
        config = config_of(folder)
        lake = SqlCatalog("default", **catalog(folder))
        lake.create_namespace("shop")
        lake.create_table("shop.rows", schema=pa.schema([("n", pa.int64())]))
        for start in (0, 3):
            rows = pa.table({"n": [start, start + 1, start + 2]})
            lake.load_table("shop.rows").append(rows)
        return {key: text for key, text in config.items() if key != "name"}

    def expected(self) -> list[object]:
        return [{"n": number} for number in range(6)]

    def bad_input(self, folder: Path) -> Mapping[str, str]:
        config = self.prepare(folder)
        before = set(folder.rglob("*.parquet"))
        lake = SqlCatalog("default", **catalog(folder))
        lake.load_table("shop.rows").append(pa.table({"n": [6]}))
        (file,) = set(folder.rglob("*.parquet")) - before
        file.write_bytes(b"x" * file.stat().st_size)
        return config


class TestIcebergSink(TwoPartitions, SinkConformance):
    connector = "IcebergSink"
    config: ClassVar = {"rotate.records": "2"}
    exactly_once = True

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {key: text for key, text in config_of(folder).items() if key != "name"}

    def written(self, folder: Path) -> list[object]:
        with closing(SqlCatalog("default", **catalog(folder))) as lake:
            if not lake.table_exists("shop.rows"):
                return []
            return lake.load_table("shop.rows").scan().to_arrow()["value"].to_pylist()


class TestCountSource(SourceConformance):
    connector = CountSource
    config: ClassVar = {"topic": "t", "last": "250"}


class TestAppendSink(SinkConformance):
    connector = AppendSink

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {"file": str(folder / "out.txt")}

    def written(self, folder: Path) -> Sequence[str]:
        file = folder / "out.txt"
        return file.read_text().splitlines() if file.exists() else []


class TestTickSource(SourceConformance):
    connector = TickSource
    config: ClassVar = {"topic": "t"}

    def expected(self) -> list[str]:
        return ["tick 1", "tick 2", "tick 3"]


class TestTableSink(SinkConformance):
    connector = TableSink
    exactly_once = True

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {"file": str(folder / "table.db")}

    def written(self, folder: Path) -> list[str]:
        with closing(sqlite3.connect(folder / "table.db")) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchall():
                return []
            return [value for (value,) in db.execute("SELECT value FROM records")]
