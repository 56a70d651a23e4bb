"""A last line was read without its newline, and more is appended to it later."""

from pathlib import Path

import pytest
from support.task.source_tasks import Offsets, Run, values

from headgate_connectors.directory import DirectorySource


def lines(folder: Path, offsets: Offsets, batch: int) -> Run:
    config = {"path": str(folder), "topic": "t", "file.settle.ms": "0", "format": "lines"}
    return Run(DirectorySource, {**config, "batch.size": str(batch)}, offsets)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_a_newline_that_comes_late_ends_its_line_and_is_none(
    tmp_path: Path, end: bytes, restart: bool, batch: int
) -> None:
    """Taken for a line, the newline would be a record that is not in the file."""
    offsets = Offsets()
    subject = lines(tmp_path, offsets, batch)
    file = tmp_path / "f.log"
    found = []
    for more in (b"a" + end + b"b", end, end + b"c" + end + b"d", end + b"e" + end):
        with file.open("ab") as appended:
            appended.write(more)
        records = subject.rest()
        for record in records:
            offsets.commit(record)
        found += values(records)
        if restart:
            subject.task.stop()
            subject = lines(tmp_path, offsets, batch)
    assert found == ["a", "b", "", "c", "d", "e"]
