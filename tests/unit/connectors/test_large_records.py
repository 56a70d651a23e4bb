"""Records of 40 MB: each format reads and writes them whole."""

import csv
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task.source_tasks import Run, values

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_connectors.directory import DirectorySource
from headgate_connectors.directory_sink import DirectorySinkTask

pytestmark = pytest.mark.exhaustive

TEXT = "é\N{SNOWMAN} " * 6_666_667
"""Of 40 MB in UTF-8."""
ROW = s.struct({"n": s.INT64, "text": s.STRING})


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.json", "a.parquet", "a.csv"])
def test_a_source_reads_a_record_of_40_mb_between_its_neighbours(tmp_path: Path, name: str) -> None:
    texts = ["first", TEXT, "last"]
    assert len(TEXT.encode()) > 40_000_000
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": texts}), path)
    elif name == "a.json":
        path.write_text(json.dumps(texts, ensure_ascii=False))
    elif name == "a.csv":
        path.write_text("".join(f"{text}\n" for text in ["text", *texts]))
    elif name == "a.jsonl":
        path.write_text("".join(f'"{text}"\n' for text in texts))
    else:
        path.write_text("".join(f"{text}\n" for text in texts))
    found = values(Run(DirectorySource, {"path": str(tmp_path), "topic": "t"}).rest())
    if name == "a.csv":
        found = [json.loads(one) for one in found]
    if name in ("a.parquet", "a.csv"):
        found = [one["text"] for one in found]
    elif name != "a.txt":
        found = [json.loads(one) for one in found]
    assert [len(one) for one in found] == [len(one) for one in texts]
    assert found == texts


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv", "jsonl"])
def test_a_sink_writes_a_record_of_40_mb_between_its_neighbours(
    tmp_path: Path, format: str
) -> None:
    subject = DirectorySinkTask()
    subject.context = FakeSinkContext(reports=False)
    subject.start({"name": "sink", "path": str(tmp_path), "format": format, "rotate.records": "3"})
    subject.open([("t", 0)])
    rows = [{"n": n, "text": text} for n, text in enumerate(["first", TEXT, "last"])]
    subject.put([SinkRecord("t", 0, n, None, row, (), 0, None, ROW) for n, row in enumerate(rows)])
    (path,) = tmp_path.glob(f"*.{format}")
    if format == "parquet":
        found = pq.read_table(path).to_pylist()
    elif format == "arrow":
        found = pa.ipc.open_file(path).read_all().to_pylist()
    elif format == "csv":
        limit = csv.field_size_limit(sys.maxsize)
        try:
            found = [{**row, "n": int(row["n"])} for row in csv.DictReader(path.open(newline=""))]
        finally:
            csv.field_size_limit(limit)
    else:
        found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == rows
