"""A DirectorySink whose folder has the records of another log."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.testing import FakeSinkContext, Message, run_sink
from headgate_connectors.directory_sink import DirectorySinkTask
from headgate_connectors.output.manifest import ManifestError

PLACE = ("topic", 0)


def run(folder: Path, messages: Sequence[Message], **settings: str) -> Any:
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    config = {"path": str(folder), "format": "jsonl", **keys}
    return run_sink("DirectorySink", config, messages).ended


def lines(folder: Path) -> list[str]:
    return "".join([path.read_text() for path in sorted(folder.glob("*.jsonl"))]).split()


def messages(count: int, time: int) -> list[Message]:
    return [Message(f"{time}-{n}", timestamp_ms=time + n) for n in range(count)]


@pytest.mark.parametrize(
    "count, seen",
    [
        (2, "this is another log: it ends at offset 2"),
        (3, "this is another log: its record at offset 2 is of 72 ms, expected 7 ms"),
        (5, "this is another log: its record at offset 2 is of 72 ms, expected 7 ms"),
    ],
)
def test_a_log_that_was_made_anew_is_refused(tmp_path: Path, count: int, seen: str) -> None:
    """Otherwise the first records of the new log would be passed over, as if they were in the
    files."""
    assert run(tmp_path, messages(3, 5)).trace is None
    ended = run(tmp_path, messages(count, 70))
    assert f"the files have the records of topic-0 up to offset 2, but {seen}" in ended.reason
    assert lines(tmp_path) == ['"5-0"', '"5-1"', '"5-2"']


def test_its_first_records_are_left_out_where_the_user_says_so(tmp_path: Path) -> None:
    run(tmp_path, messages(3, 5))
    assert run(tmp_path, messages(5, 70), on_missing_output="accept").trace is None
    assert lines(tmp_path) == ['"5-0"', '"5-1"', '"5-2"', '"70-3"', '"70-4"']


def test_a_group_without_offsets_goes_on_where_the_log_is_the_same(tmp_path: Path) -> None:
    """The sink was killed before its group's first commit, or the group's offsets have expired."""
    run(tmp_path, messages(3, 5))
    assert run(tmp_path, messages(4, 5)).trace is None
    assert lines(tmp_path) == ['"5-0"', '"5-1"', '"5-2"', '"5-3"']


@pytest.mark.parametrize("by_group, times", [(0, {}), (3, {2: 99})])
def test_what_is_not_known_is_no_fault(
    tmp_path: Path, by_group: int, times: dict[int, int]
) -> None:
    """The log may have lost the record since; and a group that has offsets has them of its log."""
    run(tmp_path, messages(3, 5))
    made = DirectorySinkTask()
    made.context = FakeSinkContext(committed={PLACE: by_group} if by_group else None)
    made.context.log_times[PLACE] = times
    made.start({"name": "test", "path": str(tmp_path), "format": "jsonl"})
    made.open([PLACE])
    assert made.context.seeks == {PLACE: 3}
    made.context = FakeSinkContext()
    made.context.log_times[PLACE] = {2: 99}
    with pytest.raises(ManifestError, match="this is another log"):
        made.open([PLACE])
