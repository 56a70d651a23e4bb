"""Records of 40 MB among small ones go through the embedded log to files. One record is over the
log's limit."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PIPELINE = """
[cluster]
data = "state"
runner = "process"
{more}

[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"file.settle.ms" = 100
{types}

[connectors.write]
"connector.class" = "DirectorySink"
topics = "rows"
path = "out"
format = "{sink}"
"rotate.interval.ms" = 500
"""
LARGE = "é\N{SNOWMAN} " * 6_666_667
"""Of 40 MB in UTF-8."""
SMALL = 50


def texts() -> list[str]:
    small = [f"small {number}" for number in range(2 * SMALL)]
    return [*small[:SMALL], LARGE, *small[SMALL:]]


def lines(path: Path) -> None:
    path.with_suffix(".jsonl").write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts())
    )


def csv_rows(path: Path) -> None:
    path.with_suffix(".csv").write_text("text\n" + "".join(f"{text}\n" for text in texts()))


def binary_column(path: Path) -> None:
    data = pa.array([text.encode() for text in texts()], pa.binary())
    pq.write_table(pa.table({"text": data}), path.with_suffix(".parquet"))


def start(folder: Path, make: Callable[[Path], None], ups: list[Up], **parts: str) -> Up:
    given = {"more": "", "types": "", "sink": "parquet", **parts}
    (folder / "pipeline.toml").write_text(PIPELINE.format(**given))
    (folder / "in").mkdir(exist_ok=True)
    make(folder / "in" / "a")
    ups.append(Up(folder, ("--until-idle",)).start())
    return ups[-1]


def ended(up: Up) -> int:
    assert up.process is not None
    return up.process.wait(180)


def written(folder: Path, sink: str) -> list[Any]:
    found: list[Any] = []
    for path in sorted((folder / "out").glob(f"*.{sink}")):
        if sink == "parquet":
            found += pq.read_table(path).to_pylist()
        else:
            found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        pytest.param(lines, {"sink": "jsonl"}, id="jsonl"),
        pytest.param(lines, {"types": '"json.types" = "text: string"'}, id="typed-jsonl"),
        pytest.param(csv_rows, {"sink": "jsonl"}, id="csv"),
        pytest.param(csv_rows, {"types": '"csv.types" = "text: string"'}, id="typed-csv"),
        pytest.param(binary_column, {}, id="parquet"),
    ],
)
def test_a_record_of_40_mb_arrives_among_small_ones(
    tmp_path: Path, make: Callable[[Path], None], parts: dict[str, str], ups: list[Up]
) -> None:
    up = start(tmp_path, make, ups, **parts)
    assert ended(up) == 0, up.tail()
    found = [row["text"] for row in written(tmp_path, parts.get("sink", "parquet"))]
    expected: list[Any] = texts()
    if make is binary_column:
        expected = [text.encode() for text in expected]
    assert [len(text) for text in found] == [len(text) for text in expected]
    assert found == expected
    shutil.rmtree(tmp_path)  # some hundred megabytes


LIMIT = '[log]\n"max.message.bytes" = 1000000'
TOLERANT = '"errors.tolerance" = "all"'


@pytest.mark.parametrize("types", ["", '"csv.types" = "text: string"'], ids=["csv", "typed-csv"])
def test_a_record_over_the_limit_of_the_log_fails_by_name_and_arrives_once_it_may(
    tmp_path: Path, types: str, ups: list[Up]
) -> None:
    up = start(tmp_path, csv_rows, ups, more=LIMIT, types=types, sink="jsonl")
    assert ended(up) == 1
    told = up.tail()
    named = r"a record for topic rows has 40000\d{3} bytes, expected at most 1000000: raise max"
    assert re.search(named, told)
    assert "{'file': 'a.csv'}" in told
    (tmp_path / "pipeline.toml").write_text(
        (tmp_path / "pipeline.toml").read_text().replace("1000000", "50000000")
    )
    again = Up(tmp_path, ("--until-idle",)).start()
    ups.append(again)
    assert ended(again) == 0, again.tail()
    assert [row["text"] for row in written(tmp_path, "jsonl")] == texts()


@pytest.mark.parametrize("types", ["", '"csv.types" = "text: string"'], ids=["csv", "typed-csv"])
def test_a_record_over_the_limit_is_passed_over_where_that_is_chosen(
    tmp_path: Path, types: str, ups: list[Up]
) -> None:
    more = f'"exactly.once.source.support" = "disabled"\n{LIMIT}'
    up = start(tmp_path, csv_rows, ups, more=more, types=f"{types}\n{TOLERANT}", sink="jsonl")
    assert ended(up) == 0, up.tail()
    assert "expected at most 1000000" in up.tail()
    expected = [text for text in texts() if text != LARGE]
    assert [row["text"] for row in written(tmp_path, "jsonl")] == expected
