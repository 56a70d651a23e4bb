"""The logs of the workers of a real `headgate up` show their readers whether records move."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.pipelines import Up
from support.depth import first

pytestmark = pytest.mark.slow

PIPELINE = """
[cluster]
workers = 1
data = "state"
runner = "{runner}"
"offset.flush.interval.ms" = 200
"headgate.log.format" = "json"
"headgate.log.progress.ms" = 500

[connectors.lines]
"connector.class" = "FileStreamSource"
topic = "lines"
file = "in.txt"

[connectors.copy]
"connector.class" = "FileStreamSink"
topics = "lines"
file = "out.txt"

[connectors.bad]
"connector.class" = "DirectorySource"
path = "bad"
topic = "numbers"
"csv.types" = "id: int64"
"errors.tolerance" = "all"
"""
PROGRESS = re.compile(
    r"(?P<task>[a-z]+-0): (?P<new>[\d,]+) records and (?P<commits>[\d,]+) commits in \d+ s; "
    r"(?P<all>[\d,]+) records since .*?(; lag (?P<lag>[\d,]+))?"
)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(tmp_path)
    yield started
    started.clean_up()


def logged(folder: Path) -> list[dict[str, Any]]:
    """All lines that are whole; each must be an object."""
    lines: list[str] = []
    for path in sorted(folder.glob("state/logs/worker-*.log")):
        lines += path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def progress(folder: Path, task: str) -> list[re.Match[str]]:
    told = [PROGRESS.fullmatch(one["message"]) for one in logged(folder)]
    return [one for one in told if one is not None and one["task"] == task]


@pytest.mark.parametrize("runner", first(1, ["process", "thread"]))
def test_each_line_is_an_object_and_each_task_tells_whether_it_moves(up: Up, runner: str) -> None:
    folder = up.folder
    (folder / "pipeline.toml").write_text(PIPELINE.format(runner=runner))
    (folder / "in.txt").write_text("".join(f"line {n}\n" for n in range(3_000)))
    (folder / "bad").mkdir()
    (folder / "bad" / "a.csv").write_text("id\n1\nnone\n3\n")
    up.start()
    for task in ("lines-0", "copy-0"):
        up.wait_for(
            f"all records of {task} and a quiet time behind them",
            lambda task=task: any(  # type: ignore[misc]
                (one["all"], one["new"]) == ("3,000", "0") for one in progress(folder, task)
            ),
            60,
        )
    assert up.end() == 0, up.tail()
    found = logged(folder)
    assert all({"timestamp", "level", "logger", "message"} <= one.keys() for one in found)
    for task, lag in (("lines", None), ("copy", "0")):
        told = progress(folder, f"{task}-0")
        assert sum(int(one["new"].replace(",", "")) for one in told) == 3_000
        assert sum(int(one["commits"]) for one in told) >= 1
        assert told[-1]["lag"] == lag
        objects = [one for one in found if one["message"] == told[-1][0]]
        assert {(one["connector"], one["task"]) for one in objects} == {(task, 0)}
    told_of_bad = [one for one in found if "none" in one["message"] and "a.csv" in one["message"]]
    assert {(one["connector"], one["task"]) for one in told_of_bad} == {("bad", 0)}
