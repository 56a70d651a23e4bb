"""`headgate up` notices a full disk, says so once, and ends the run."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.files.small_disk import small_file_system

from headgate_runtime.up import disk
from headgate_runtime.up.disk import PROBE, Disk, is_full, unusable


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 2) as folder:
        yield folder


def fill(folder: Path) -> None:
    with (folder / "fill").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC


def test_a_full_disk_is_seen_and_no_trace_is_left(small: Path) -> None:
    assert not is_full(small)
    fill(small)
    assert is_full(small)
    assert [path.name for path in small.iterdir()] == ["fill"]
    (small / "fill").unlink()
    assert not is_full(small)
    assert list(small.iterdir()) == []


def test_it_is_said_once_and_ends_the_run_after_a_while(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(disk.time, "monotonic", lambda: now[0])
    seen = Disk(small)
    assert (seen.look(), seen.news, seen.full) == ("", "", ())
    fill(small)
    assert seen.look() == ""
    (reason,) = seen.full  # an end by the user is no success now
    assert reason.endswith("is full: free some space, then start again")
    assert seen.news.endswith("is full: free some space, then start again; this ends in 10 s")
    now[0] = 9.0
    assert (seen.look(), seen.news) == ("", "")
    now[0] = 10.0
    assert seen.look() == f"the disk of the data folder {small} is full: free some space, then " + (
        "start again"
    )


def test_space_that_is_freed_in_time_is_said(small: Path) -> None:
    seen = Disk(small)
    fill(small)
    seen.look()
    (small / "fill").unlink()
    assert (seen.look(), seen.news) == ("", f"there is space again for {small}")
    assert seen.full == ()


def test_little_space_that_can_be_used_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some space is kept for root, which may use it."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=4096))
    assert not is_full(tmp_path)
    assert not (tmp_path / PROBE).exists()


def test_a_quota_is_a_full_disk_and_other_faults_are_told_as_they_are(tmp_path: Path) -> None:
    assert "is full" in unusable(tmp_path, OSError(errno.EDQUOT, "Disk quota exceeded"))
    denied = OSError(errno.EACCES, "Permission denied")
    assert unusable(tmp_path, denied).endswith("cannot be used: [Errno 13] Permission denied")
