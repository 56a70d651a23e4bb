"""Files of a DirectorySource are replaced, renamed, emptied, cut or deleted."""

import gzip
import json
import os
import shutil
import string
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task.source_tasks import Offsets, Run, values

from headgate.connector.api import OffsetUpdate, SourceItem
from headgate_connectors import directory
from headgate_connectors.directory import BadFileError, DirectorySource
from headgate_connectors.files import input
from headgate_connectors.files.claims import FileClaims


def run(folder: Path, offsets: Offsets, task: int = 0, **settings: str) -> Run:
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    return Run(DirectorySource, {"path": str(folder), "topic": "t", **keys}, offsets, task)


def read(subject: Run) -> list[SourceItem]:
    """All that there is, committed."""
    records = subject.rest()
    for record in records:
        subject.offsets.commit(record)
    return records


def replace(path: Path, text: str) -> None:
    new = path.with_suffix(".tmp")
    new.write_text(text)
    new.rename(path)


def started(folder: Path, text: str = "1\n2\n3\n", **settings: str) -> Run:
    (folder / "a.jsonl").write_text(text)
    subject = run(folder, Offsets(), **settings)
    read(subject)
    return subject


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize(
    "text",
    ["1\n2\n4\n", "7\n", "1\n9\n3\n", "4\n5\n6\n7\n8\n"],
    ids=["end", "short", "middle", "all"],
)
def test_a_file_that_was_renamed_over_is_read_from_its_beginning(
    tmp_path: Path, text: str, restart: bool
) -> None:
    """That holds also for a file that differs only in the middle, with the size and the last record
    of the old one."""
    subject = started(tmp_path)
    replace(tmp_path / "a.jsonl", text)
    if restart:
        subject = run(tmp_path, subject.offsets)
    found = read(subject)
    assert values(found) == text.split()
    assert isinstance(found[0], OffsetUpdate)  # in one transaction with the first records
    assert found[0].source_offset == {"position": 0}
    assert read(run(tmp_path, subject.offsets)) == []
    assert "replaced; what stands there now is read from its beginning" in subject.context.told[-1]


def test_a_file_that_was_replaced_by_a_longer_copy_of_itself_is_read_on(tmp_path: Path) -> None:
    subject = started(tmp_path)
    replace(tmp_path / "a.jsonl", "1\n2\n3\n4\n")
    assert values(read(subject)) == ["4"]


def test_a_file_that_is_written_anew_in_its_place_is_read_from_its_beginning(
    tmp_path: Path,
) -> None:
    subject = started(tmp_path)
    (tmp_path / "a.jsonl").write_text("1\n9\n3\n4\n")
    assert values(read(subject)) == ["1", "9", "3", "4"]


def test_an_emptied_file_begins_anew(tmp_path: Path) -> None:
    """Some logs are copied and then emptied."""
    subject = started(tmp_path)
    (tmp_path / "a.jsonl").write_text("")
    assert values(read(subject)) == []
    (tmp_path / "a.jsonl").write_text("1\n2\n3\n4\n")
    assert values(read(run(tmp_path, subject.offsets))) == ["1", "2", "3", "4"]


def test_a_file_that_only_became_shorter_is_set_aside(tmp_path: Path) -> None:
    subject = started(tmp_path)
    os.truncate(tmp_path / "a.jsonl", 2)
    (tmp_path / "b.jsonl").write_text('"b"\n')
    assert values(read(subject)) == ['"b"']
    (reason,) = subject.context.quarantined
    assert "a.jsonl: it was read up to byte 6 and is only 2 bytes long now: truncated" in reason
    again = run(tmp_path, subject.offsets, on_replace="reread")
    assert values(read(again)) == ["1"]


def test_replaced_files_can_be_left_alone(tmp_path: Path) -> None:
    subject = started(tmp_path, on_replace="skip")
    replace(tmp_path / "a.jsonl", "4\n")
    (tmp_path / "b.jsonl").write_text('"b"\n')
    assert values(read(subject)) == ['"b"']
    assert subject.context.quarantined == []
    assert values(read(run(tmp_path, subject.offsets, on_replace="skip"))) == []


def test_replaced_files_can_fail_the_task(tmp_path: Path) -> None:
    subject = started(tmp_path, on_replace="fail", errors_tolerance="all")
    replace(tmp_path / "a.jsonl", "4\n")
    with pytest.raises(BadFileError, match=r"a\.jsonl: .*replaced\. Give new data a new name"):
        subject.rest()


def test_a_whole_folder_that_was_copied_is_read_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    subject = started(tmp_path / "in")
    shutil.copytree(tmp_path / "in", tmp_path / "copy")
    with (tmp_path / "copy" / "a.jsonl").open("a") as file:
        file.write("4\n")
    assert values(read(run(tmp_path / "copy", subject.offsets))) == ["4"]


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("rotated", ["app-20240101.log", "app.log.1", "z.log"])
def test_a_rotated_log_is_read_on_under_its_new_name(
    tmp_path: Path, rotated: str, restart: bool, tasks: int
) -> None:
    offsets = Offsets()
    settings = {"tasks_max": str(tasks), "format": "lines"}
    found: list[str] = []

    def start() -> list[Run]:
        return [run(tmp_path, offsets, number, **settings) for number in range(tasks)]

    def look(subjects: list[Run]) -> list[Run]:
        for subject in subjects:
            found.extend(values(read(subject)))
        return start() if restart else subjects

    log = tmp_path / "app.log"
    log.write_text("l1\nl2\n")
    subjects = look(start())
    with log.open("a") as file:
        file.write("l3\n")
    log.rename(tmp_path / rotated)
    log.write_text("l4\n")
    subjects = look(subjects)
    with log.open("a") as file:
        file.write("l5\nl6\n")
    look(look(subjects))
    assert sorted(found) == ["l1", "l2", "l3", "l4", "l5", "l6"]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("batch", ["1", "3", "100"])
def test_logs_that_are_rotated_by_numbers_are_read_once(
    tmp_path: Path, restart: bool, tasks: int, batch: str
) -> None:
    """logrotate works so: each name gets the file that the name before it had."""
    offsets, found, number = Offsets(), list[str](), 0
    settings = {"tasks_max": str(tasks), "format": "lines", "batch_size": batch}
    subjects = [run(tmp_path, offsets, each, **settings) for each in range(tasks)]
    log = tmp_path / "app.log"
    for _ in range(4):
        for _ in range(3):
            number += 1
            with log.open("a") as file:
                file.write(f"{number}\n")
            for subject in subjects:
                found += values(read(subject))
        number += 1
        with log.open("a") as file:
            file.write(f"{number}\n")
        for older in range(5, 1, -1):
            if (tmp_path / f"app.log.{older - 1}").exists():
                (tmp_path / f"app.log.{older - 1}").rename(tmp_path / f"app.log.{older}")
        log.rename(tmp_path / "app.log.1")
        if restart:
            subjects = [run(tmp_path, offsets, each, **settings) for each in range(tasks)]
    for subject in subjects * 2:
        found += values(read(subject))
    assert sorted(found, key=int) == [str(each) for each in range(1, number + 1)]


def of_task(task: int) -> str:
    """A name whose file is read by this one of two tasks."""
    names = (f"{letter}.jsonl" for letter in string.ascii_lowercase)
    return next(name for name in names if zlib.crc32(name.encode()) % 2 == task)


def test_what_another_task_commits_while_a_file_is_claimed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, old, new = Offsets(), tmp_path / of_task(0), tmp_path / of_task(1)
    one, two = (run(tmp_path, offsets, task, tasks_max="2") for task in range(2))
    old.write_text("1\n2\n")
    records = one.poll() or []
    assert values(records) == ["1", "2"]
    old.rename(new)
    assert two.poll() == []  # it waits
    claim = FileClaims.claim

    def committed_before(self: FileClaims, inodes: Collection[int]) -> Collection[int]:
        monkeypatch.undo()
        for record in records:
            offsets.commit(record)
        mine = one.task._claims
        mine.release(set(mine.held))
        return claim(self, inodes)

    monkeypatch.setattr(FileClaims, "claim", committed_before)
    assert values(read(two)) == []
    assert values(read(one)) == []


def with_one_not_committed(
    first: Path, second: Path, offsets: Offsets
) -> tuple[Run, Run, list[SourceItem]]:
    """Two tasks that have read a file each, and what the first has not committed."""
    first.parent.mkdir()
    one, two = (run(first.parent, offsets, task, tasks_max="2") for task in range(2))
    first.write_text("1\n2\n")
    second.write_text("3\n")
    assert values(read(two)) == ["3"]
    pending = one.poll() or []
    assert values(pending) == ["1", "2"]
    return one, two, pending


def test_a_claim_outlasts_the_name_until_what_was_read_is_committed(tmp_path: Path) -> None:
    """The file of one task was elsewhere while the file of another one got its name."""
    aside, offsets = tmp_path / "aside", Offsets()
    first, second = (tmp_path / "in" / of_task(task) for task in range(2))
    one, two, pending = with_one_not_committed(first, second, offsets)
    first.rename(aside)
    second.rename(first)
    for _ in range(2):
        assert not one.poll()
    aside.rename(second)
    with second.open("a") as file:
        file.write("4\n")
    pending += two.poll() or []
    assert values(pending) == ["1", "2"]  # it waits
    for record in pending:
        offsets.commit(record)
    assert values(read(one) + read(two) + read(one)) == ["4"]


def test_a_claim_of_a_file_that_went_away_ends_when_what_was_read_is_committed(
    tmp_path: Path,
) -> None:
    """A new file may get its inode, and would wait for ever."""
    offsets = Offsets()
    first, second = (tmp_path / "in" / of_task(task) for task in range(2))
    one, _, pending = with_one_not_committed(first, second, offsets)
    first.rename(tmp_path / "aside")
    second.rename(first)
    assert not one.poll()
    assert one.task._claims.held
    for record in pending:
        offsets.commit(record)
    assert not one.poll()
    assert not one.task._claims.held


def test_a_rotated_file_that_cannot_be_read_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file holds up no other file, and is read on from its offset later."""
    subject = started(tmp_path)
    moved = tmp_path / "b.jsonl"
    (tmp_path / "a.jsonl").rename(moved)
    with moved.open("a") as file:
        file.write("4\n")
    (tmp_path / "a.jsonl").write_text("5\n")
    opened = directory.open_reader

    def failing(kind: str, path: Any, *more: Any) -> Any:
        if path == moved:
            raise PermissionError(13, "Permission denied")
        return opened(kind, path, *more)

    with monkeypatch.context() as denied:
        denied.setattr(directory, "open_reader", failing)
        assert values(read(subject)) == ["5"]
    assert "b.jsonl: cannot be read" in subject.context.quarantined[0]
    assert values(read(run(tmp_path, subject.offsets))) == ["4"]


def test_a_rotation_is_no_replacement_for_whoever_gets_the_name(tmp_path: Path) -> None:
    """A file of the first task was renamed to a name of the second, and on to a third one."""
    offsets, first, then = Offsets(), tmp_path / of_task(0), tmp_path / of_task(1)
    settings = {"tasks_max": "2", "on_replace": "fail"}

    def all_read() -> list[str]:
        subjects = [run(tmp_path, offsets, task, **settings) for task in range(2)]
        return [each for subject in subjects[::-1] * 2 for each in values(read(subject))]

    first.write_text("1\n2\n")
    assert all_read() == ["1", "2"]
    first.rename(then)
    assert all_read() == []
    then.rename(tmp_path / "third.jsonl")
    then.write_text("3\n")
    assert all_read() == ["3"]


def test_offsets_of_an_earlier_version_tell_the_first_name(tmp_path: Path) -> None:
    """Earlier versions of Headgate had the name in the offset, not in the source partition."""
    offsets, first, then = Offsets(), tmp_path / of_task(0), tmp_path / of_task(1)
    first.write_text("1\n2\n")
    read(run(tmp_path, offsets, 0, tasks_max="2"))
    first.rename(then)
    (offset,) = offsets.stored.values()
    offsets.stored = {
        (("file", first.name),): {"position": 0},
        (("file", then.name),): {**offset, "was": first.name},
    }
    with then.open("a") as file:
        file.write("3\n")
    assert values(read(run(tmp_path, offsets, 1, tasks_max="2"))) == []
    assert values(read(run(tmp_path, offsets, 0, tasks_max="2"))) == ["3"]
    then.rename(tmp_path / "third.jsonl")
    for task in range(2):
        assert values(read(run(tmp_path, offsets, task, tasks_max="2"))) == []


@pytest.mark.parametrize("batch", ["1", "2", "3", "4"])
def test_a_poll_that_is_full_with_a_rename_leaves_no_line_unread(
    tmp_path: Path, batch: str
) -> None:
    """The report of the rename takes the place of rows. Once a poll without rows seemed to be the
    end of the file."""
    subject = started(tmp_path)
    (tmp_path / "a.jsonl").rename(tmp_path / "b.jsonl")
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write("4\n5\n")
    again = run(tmp_path, subject.offsets, batch_size=batch)
    assert values(read(again)) == ["4", "5"]


def test_a_renamed_file_is_not_taken_for_an_older_one_of_its_inode(tmp_path: Path) -> None:
    """An inode is reused after its file was deleted, and the committed offset of that file
    stays."""
    subject = started(tmp_path)
    (mine,) = subject.offsets.stored.values()
    inode, size, *_ = str(mine["stat"]).split(":")
    older = {**mine, "prefix": 1, "position": 4, "stat": f"{inode}:{int(size) - 2}:1:1"}
    subject.offsets.stored[(("file", "deleted.jsonl"),)] = older
    (tmp_path / "a.jsonl").rename(tmp_path / "b.jsonl")
    assert values(read(run(tmp_path, subject.offsets))) == []


@pytest.mark.parametrize("restart", [True, False])
def test_a_file_that_is_renamed_and_has_no_successor_is_not_read_twice(
    tmp_path: Path, restart: bool
) -> None:
    subject = started(tmp_path)
    (tmp_path / "a.jsonl").rename(tmp_path / "b.jsonl")
    if restart:
        subject = run(tmp_path, subject.offsets)
    assert values(read(subject)) == []
    # The same content under the old name is another file.
    (tmp_path / "a.jsonl").write_text("1\n2\n3\n")
    assert values(read(run(tmp_path, subject.offsets))) == ["1", "2", "3"]
    assert values(read(run(tmp_path, subject.offsets))) == []


def test_a_new_file_in_the_inode_of_a_deleted_one_is_read(tmp_path: Path) -> None:
    subject = started(tmp_path, "ok\n".replace("ok", '"ok"'))
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b.jsonl").write_text('"ok"\n')
    assert values(read(subject)) == ['"ok"']


@pytest.mark.parametrize("compared", [input.PREFIX_BYTES_MAX, 0])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json", "a.txt", "a.jsonl.gz", "a.parquet"])
def test_a_file_that_looks_like_the_one_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, in_place: bool, compared: int
) -> None:
    """One such file has the old one's size, time, first and last bytes. Another is larger than
    `compared`."""
    monkeypatch.setattr(input, "PREFIX_BYTES_MAX", compared)
    one, two = (made_of([*range(100, 4000), middle, *range(4000, 8000)], name) for middle in (1, 2))
    file, time_ns = tmp_path / name, (10**18, 10**18)
    assert len(one) == len(two) or name.endswith(".gz")
    file.write_bytes(one)
    os.utime(file, ns=time_ns)
    subject = run(tmp_path, Offsets())
    first = values(read(subject))
    if in_place:
        with file.open("r+b") as again:
            again.write(two)
            again.truncate()
    else:
        (tmp_path / "new.tmp").write_bytes(two)
        (tmp_path / "new.tmp").rename(file)
    os.utime(file, ns=time_ns)
    second = values(read(run(tmp_path, subject.offsets)))
    assert len(second) == len(first) == 7901
    assert [n for n, (old, new) in enumerate(zip(first, second, strict=True)) if old != new] == [
        3900
    ]


def made_of(numbers: list[int], name: str) -> bytes:
    if name.endswith(".parquet"):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": numbers}), sink, compression="none", use_dictionary=False)
        return bytes(sink.getvalue().to_pybytes())
    if name.endswith(".json"):
        return json.dumps([f"{n:06}" for n in numbers]).encode()
    text = "".join(f'"{n:06}"\n' for n in numbers).encode()
    text = b"n\n" + text if name.endswith(".csv") else text
    return gzip.compress(text, mtime=0) if name.endswith(".gz") else text
