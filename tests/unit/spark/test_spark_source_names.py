"""SparkSource finds the files that Spark silently leaves out of its listing, because their names
are not UTF-8."""

from pathlib import Path
from typing import Any

import pytest
from support.task.source_tasks import Run

from headgate_spark.source import SparkSource
from headgate_spark.source_files import FilesReader, not_utf8

ODD = "x\udcff.csv"


def odd(folder: Path, name: str = ODD) -> str:
    """Makes a file of that name; what is told of it."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("1\n")
    return f"{folder}/{name!r} is not read: no UTF-8 in its name"


def test_names_that_java_cannot_have_are_found(tmp_path: Path) -> None:
    here, below = odd(tmp_path), odd(tmp_path / "gr\u00f6\u00dfe")
    (tmp_path / "\u6570.csv").write_text("1\n")
    inside = tmp_path / "y\udcfe"
    odd(inside)
    hidden = tmp_path / "_hidden"
    odd(hidden)
    odd(tmp_path, f".{ODD}")
    (tmp_path / "back").symlink_to(tmp_path)
    told = [here, below, f"{tmp_path}/{inside.name!r} is not read: no UTF-8 in its name"]
    for path in (f"{tmp_path}", f"file://{tmp_path}", f"file:{tmp_path}"):
        assert sorted(line for line in not_utf8(path) if "/back/" not in line) == sorted(told)
    assert list(not_utf8(f"{tmp_path}/*.csv")) == [here]
    assert here not in list(not_utf8(f"{tmp_path}", "*.json"))
    assert list(not_utf8("s3://bucket/in")) == list(not_utf8(f"{tmp_path}/none")) == []


def test_folders_behind_links_are_looked_into_once(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    folder.mkdir()
    odd(elsewhere)
    (elsewhere / "loop").symlink_to(elsewhere)
    (folder / "link").symlink_to(elsewhere)
    assert len(list(not_utf8(str(folder)))) < 3
    assert f"{folder}/link/{ODD!r} is not read: no UTF-8 in its name" in list(not_utf8(str(folder)))


@pytest.mark.parametrize(("task", "count"), [(0, 1), (1, 0)])
def test_one_task_sets_them_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: int, count: int
) -> None:
    """The run ended as if all had been read."""
    told = odd(tmp_path)
    monkeypatch.setattr(FilesReader, "_listing", lambda _self, _session: [])
    config = {"topic": "t", "format": "csv", "mode": "files", "path": str(tmp_path)}
    config |= {"poll.interval.ms": "10", "tasks.max": "2"}
    run = Run(SparkSource, config, task=task, start=False)
    run.context.worker_settings = {"spark.remote": "sc://nowhere"}
    run.task.start(run.config)
    subject: Any = run.task
    monkeypatch.setattr(subject._sessions, "get", lambda: subject)
    subject._prepared = subject
    for _ in range(2):
        subject._readers[0]._listed_at = float("-inf")
        assert not run.poll()
        assert run.context.quarantined == [told] * count
    assert run.context.told == [f"set aside {told}"] * count
    (tmp_path / ODD).unlink()
    subject._readers[0]._listed_at = float("-inf")
    assert not run.poll()
    assert run.context.quarantined == []


@pytest.mark.parametrize(("format", "count"), [("csv", 1), ("delta", 0)])
def test_they_are_set_aside_where_rows_are_read_in_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, count: int
) -> None:
    """A table has a list of its files, so that what else is in its folder is none of it."""
    told = odd(tmp_path)
    config = {"topic": "t", "format": format, "mode": "bulk", "path": str(tmp_path)}
    run = Run(SparkSource, config, start=False)
    run.context.worker_settings = {"spark.remote": "sc://nowhere"}
    run.task.start(run.config)
    subject: Any = run.task
    monkeypatch.setattr(subject, "_read", lambda _reader: [])
    assert not run.poll()
    assert run.context.quarantined == [told] * count
    assert run.context.told == [f"set aside {told}"] * count
