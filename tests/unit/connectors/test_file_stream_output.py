"""A FileStreamSink on the embedded log whose file is deleted, emptied, cut or replaced."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.task.body_bench import BodyBench
from support.task.sink_records import committed, fill

from headgate.connector.api import SinkRecord
from headgate.task.messages import TaskKind, TaskOutcome
from headgate.testing import FakeSinkContext
from headgate_connectors.file_stream_sink import (
    FileStreamSink,
    FileStreamSinkTask,
    OutputMissingError,
)


def bench(folder: Path, **config: str) -> BodyBench:
    keys = {key.replace("_", "."): value for key, value in config.items()}
    given = {"topics": "t", "file": str(folder / "out.txt"), **keys}
    return BodyBench(folder, FileStreamSinkTask, given, kind=TaskKind.SINK)


def run(folder: Path, **config: str) -> list[str]:
    """Lines of the file once all records are committed."""
    subject = bench(folder, **config).start()
    subject.until(lambda: sum(committed(folder).values()) == end(folder) and subject.progress)
    assert subject.stop().outcome is TaskOutcome.STOPPED
    return (folder / "out.txt").read_text().splitlines()


def end(folder: Path) -> int:
    return int((folder / "end").read_text())


def add(folder: Path, *values: str) -> None:
    known = end(folder) if (folder / "end").exists() else 0
    fill(folder, [value.encode() for value in values])
    (folder / "end").write_text(str(known + len(values)))


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_an_output_that_is_gone_at_the_start_is_an_error(tmp_path: Path, how: str) -> None:
    add(tmp_path, "a", "b", "c")
    assert run(tmp_path) == ["a", "b", "c"]
    out = tmp_path / "out.txt"
    out.unlink() if how == "removed" else out.write_text("")
    add(tmp_path, "d")
    for _ in range(2):  # each start finds it
        ended = bench(tmp_path).start().wait()
        assert ended.outcome is TaskOutcome.FAILED
        assert "out.txt is empty or was not there, but 3 records were committed" in ended.reason
        assert "on.missing.output = rewrite" in ended.reason and "accept" in ended.reason
    assert sum(committed(tmp_path).values()) == 3


def test_a_missing_output_can_be_written_anew_or_accepted(tmp_path: Path) -> None:
    add(tmp_path, "a", "b", "c")
    assert run(tmp_path) == ["a", "b", "c"]
    (tmp_path / "out.txt").unlink()
    add(tmp_path, "d")
    subject = bench(tmp_path, on_missing_output="rewrite").start()
    subject.until(lambda: subject.progress.records == 4)
    subject.stop()
    assert (tmp_path / "out.txt").read_text().splitlines() == ["a", "b", "c", "d"]
    (tmp_path / "out.txt").unlink()
    add(tmp_path, "e")
    assert run(tmp_path, on_missing_output="accept") == ["e"]


@pytest.mark.parametrize("how", ["removed", "emptied", "replaced"])
def test_an_output_that_goes_while_it_is_written_is_an_error(tmp_path: Path, how: str) -> None:
    add(tmp_path, "a", "b", "c")
    out = tmp_path / "out.txt"
    subject = bench(tmp_path).start()
    subject.until(lambda: sum(committed(tmp_path).values()) == 3)
    if how == "emptied":
        out.write_text("")
    else:
        out.rename(tmp_path / "away")
        if how == "replaced":
            out.write_text("a\nb\nc\n")
    add(tmp_path, "d")
    ended = subject.wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "while it was written; 3 records were committed to it before" in ended.reason
    assert sum(committed(tmp_path).values()) == 3
    if how != "removed":  # nothing was added to it
        assert out.read_text() == ("" if how == "emptied" else "a\nb\nc\n")


def cut(out: Path) -> None:
    with out.open("r+b") as file:
        file.truncate(4)


def write_over(out: Path) -> None:
    """Other text of the same length, in the same file."""
    with out.open("r+b") as file:
        file.write(b"x")


def replace(out: Path) -> None:
    out.unlink()
    out.write_text("other\ntext\nand more of it\n")


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (cut, "was cut or replaced: it has 4 bytes, expected 6 or more"),
    "edited": (write_over, "was replaced or edited: its bytes up to 6 are not those written"),
    "replaced": (replace, "was replaced or edited"),
}


@pytest.mark.parametrize("how", sorted(HARM))
def test_an_output_that_was_cut_or_replaced_before_the_start_is_an_error(
    tmp_path: Path, how: str
) -> None:
    add(tmp_path, "a", "b", "c")
    assert run(tmp_path) == ["a", "b", "c"]
    out = tmp_path / "out.txt"
    harm, text = HARM[how]
    harm(out)
    left = out.read_text().splitlines()
    add(tmp_path, "d")
    for _ in range(2):  # each start finds it
        ended = bench(tmp_path).start().wait()
        assert ended.outcome is TaskOutcome.FAILED
        assert text in ended.reason and "but 3 records were committed to it" in ended.reason
        assert "on.missing.output = rewrite" in ended.reason and "accept" in ended.reason
    assert out.read_text().splitlines() == left
    assert run(tmp_path, on_missing_output="accept") == [*left, "d"]
    add(tmp_path, "e")
    assert run(tmp_path) == [*left, "d", "e"]  # what was accepted is no error any more


@pytest.mark.parametrize("how", sorted(HARM))
def test_an_output_that_was_cut_or_replaced_can_be_written_anew(tmp_path: Path, how: str) -> None:
    """The rest of the old output stays: it may be all that is left of records that the log no
    longer has."""
    add(tmp_path, "a", "b", "c")
    assert run(tmp_path) == ["a", "b", "c"]
    out = tmp_path / "out.txt"
    HARM[how][0](out)
    left = out.read_text().splitlines()
    add(tmp_path, "d")
    subject = bench(tmp_path, on_missing_output="rewrite").start()
    subject.until(lambda: subject.progress.records == 4)
    subject.stop()
    assert out.read_text().splitlines() == [*left, "a", "b", "c", "d"]
    add(tmp_path, "e")
    assert run(tmp_path) == [*left, "a", "b", "c", "d", "e"]


def test_an_output_that_was_copied_or_added_to_is_no_error(tmp_path: Path) -> None:
    add(tmp_path, "a", "b", "c")
    assert run(tmp_path) == ["a", "b", "c"]
    out = tmp_path / "out.txt"
    shutil.copy(out, tmp_path / "copy")
    (tmp_path / "copy").rename(out)
    with out.open("a") as file:
        file.write("theirs\n")
    add(tmp_path, "d")
    assert run(tmp_path) == ["a", "b", "c", "theirs", "d"]


def test_an_output_that_is_written_over_while_it_is_written_is_an_error(tmp_path: Path) -> None:
    """The file is the same, with the same length."""
    add(tmp_path, "a", "b", "c")
    subject = bench(tmp_path).start()
    subject.until(lambda: sum(committed(tmp_path).values()) == 3)
    write_over(tmp_path / "out.txt")
    add(tmp_path, "d")
    ended = subject.wait()
    assert "are not those written while it was written; 3 records" in ended.reason
    assert sum(committed(tmp_path).values()) == 3


def test_an_output_that_is_cut_and_grows_again_at_once_is_an_error(tmp_path: Path) -> None:
    """The file was cut between the look and the write, and has more bytes than at the look."""
    task = FileStreamSinkTask()
    task.context = SimpleNamespace(committed=dict)  # type: ignore[assignment]
    task.start({"file": str(tmp_path / "out")})
    task.put([SinkRecord("t", 0, 0, None, "one", (), 0)])
    task._check_output()
    (tmp_path / "out").write_text("")
    task._file.append([b"longer than what was there"])
    with pytest.raises(OutputMissingError, match="was cut from 31 to 27 bytes"):
        task.flush()
    task.stop()


def test_tasks_of_one_file_know_what_the_others_have_written(tmp_path: Path) -> None:
    """The slower one does not note less than the faster one has."""
    tasks = [FileStreamSinkTask(), FileStreamSinkTask()]
    for number, task in enumerate(tasks):
        task.context = SimpleNamespace(committed=lambda: {("t", 0): 2})  # type: ignore[assignment]
        task.start({"file": str(tmp_path / "out"), "tasks.max": "2"})
        task.put([SinkRecord("t", number, 0, None, "line", (), 0)])
        task.flush()
    tasks[0].flush()
    (tmp_path / "out").write_text("line\nlin")
    late = FileStreamSinkTask()
    late.context = tasks[0].context
    late.start({"file": str(tmp_path / "out"), "tasks.max": "2"})
    with pytest.raises(OutputMissingError, match="has 8 bytes, expected 10 or more, but 2 records"):
        late.open([("t", 0)])
    for task in (*tasks, late):
        task.stop()


def test_offsets_that_were_reset_make_a_cut_output_no_error(tmp_path: Path) -> None:
    task = FileStreamSinkTask()
    task.context = SimpleNamespace(committed=dict)  # type: ignore[assignment]
    for text in ("one", "two"):
        task.start({"file": str(tmp_path / "out")})
        task.open([("t", 0)])
        task.put([SinkRecord("t", 0, 0, None, text, (), 0)])
        task.flush()
        task.stop()
        (tmp_path / "out").write_text("")


@pytest.mark.parametrize("damaged", ["", "{", '{"size": 3'])
def test_a_position_that_a_crash_has_torn_is_none(tmp_path: Path, damaged: str) -> None:
    add(tmp_path, "a", "b", "c")
    assert run(tmp_path) == ["a", "b", "c"]
    (tmp_path / ".out.txt.position").write_text(damaged)
    add(tmp_path, "d")
    assert run(tmp_path) == ["a", "b", "c", "d"]


def test_a_position_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    (tmp_path / ".out.position").mkdir()
    logged: list[str] = []
    task = FileStreamSinkTask()
    task.context = SimpleNamespace(committed=dict, log=logged.append)  # type: ignore[assignment]
    task.start({"file": str(tmp_path / "out")})
    for _ in range(2):
        task.put([SinkRecord("t", 0, 0, None, "one", (), 0)])
        task.flush()
    task.stop()
    (told,) = logged
    assert "cannot note how far it is written" in told and ".out.position" in told


def tear(folder: Path, text: str) -> None:
    with (folder / "out.txt").open("a") as file:
        file.write(text)


@pytest.mark.parametrize("torn", ["c" * 300_000, "c" * 400_000, f"{'c' * 400_000}\ndd"])
def test_a_line_that_a_kill_has_torn_is_written_anew(tmp_path: Path, torn: str) -> None:
    """The line's record was not committed, and comes again as a whole."""
    add(tmp_path, "a", "b")
    assert run(tmp_path) == ["a", "b"]
    tear(tmp_path, torn)
    add(tmp_path, "c" * 400_000, "ddd")
    lines = run(tmp_path)
    assert [line[:3] for line in lines if line != "c" * 400_000] == ["a", "b", "ddd"]
    assert lines.count("c" * 400_000) in (1, 2)  # once more where its line was whole


def test_a_torn_line_of_the_first_batch_is_written_anew(tmp_path: Path) -> None:
    """Nothing was committed, but a whole line of the batch stands before the torn one."""
    (tmp_path / "out.txt").write_text("theirs\naaa\nbb")
    add(tmp_path, "aaa", "bbb")
    assert run(tmp_path) == ["theirs", "aaa", "aaa", "bbb"]


@pytest.mark.parametrize("theirs", ["half", "x", "aa"])
def test_a_last_line_of_others_is_kept(tmp_path: Path, theirs: str) -> None:
    (tmp_path / "out.txt").write_text(f"theirs\n{theirs}")
    add(tmp_path, "aaa")
    assert run(tmp_path) == ["theirs", theirs, "aaa"]


def test_a_last_line_of_others_is_kept_although_records_were_committed(tmp_path: Path) -> None:
    add(tmp_path, "a", "b")
    assert run(tmp_path) == ["a", "b"]
    tear(tmp_path, "theirs")
    add(tmp_path, "c")
    assert run(tmp_path) == ["a", "b", "theirs", "c"]


def test_one_of_several_tasks_never_cuts_a_line(tmp_path: Path) -> None:
    """Another task may be writing it."""
    add(tmp_path, "a")
    assert run(tmp_path, tasks_max="2") == ["a"]
    tear(tmp_path, "bb")
    add(tmp_path, "bbb")
    assert run(tmp_path, tasks_max="2") == ["a", "bb", "bbb"]


def test_a_rewrite_that_a_kill_has_ended_begins_anew(tmp_path: Path) -> None:
    """Before the rewrite's first commit, the group's offsets are those of the lost file."""
    add(tmp_path, "a", "b", "c")
    assert run(tmp_path) == ["a", "b", "c"]
    (tmp_path / "out.txt").unlink()
    committed = {("t", 0): 3}
    task = FileStreamSinkTask()
    seeks: dict[tuple[str, int], int] = {}
    task.context = SimpleNamespace(  # type: ignore[assignment]
        committed=lambda: committed,
        log=print,
        offset=lambda topic, partition, at: seeks.update({(topic, partition): at}),
        request_commit=lambda: None,
    )
    config = {"file": str(tmp_path / "out.txt"), "on.missing.output": "rewrite"}
    task.start({**config, "tasks.max": "1"})
    task.open([("t", 0)])
    task.put([SinkRecord("t", 0, 0, None, "a", (), 0)])
    assert seeks == {("t", 0): 0}
    task.stop()  # killed: its commit never came
    subject = bench(tmp_path, on_missing_output="fail").start()
    assert "was being written anew when its task ended" in subject.wait().reason
    subject = bench(tmp_path, on_missing_output="rewrite").start()
    subject.until(lambda: subject.progress.records == 3)
    subject.stop()
    assert (tmp_path / "out.txt").read_text().splitlines() == ["a", "a", "b", "c"]


def test_a_rewrite_that_was_killed_goes_on_where_it_was_noted(tmp_path: Path) -> None:
    """Killed after the first commit, between the note and the commit, and after the last."""
    add(tmp_path, "a", "b", "c")
    assert run(tmp_path) == ["a", "b", "c"]
    (tmp_path / "out.txt").unlink()
    seeks: dict[tuple[str, int], int] = {}
    group = {("t", 0): 3}

    def start(choice: str) -> FileStreamSinkTask:
        task = FileStreamSinkTask()
        task.context = SimpleNamespace(  # type: ignore[assignment]
            committed=lambda: dict(group),
            log=print,
            offset=lambda topic, partition, at: seeks.update({(topic, partition): at}),
            request_commit=lambda: None,
        )
        task.start({"file": str(tmp_path / "out.txt"), "on.missing.output": choice})
        task.open([("t", 0)])
        return task

    def put(task: FileStreamSinkTask, offset: int) -> None:
        task.put([SinkRecord("t", 0, offset, None, "abc"[offset], (), 0)])

    task = start("rewrite")
    for offset in range(2):
        put(task, offset)
    task.pre_commit({("t", 0): 2})
    task.stop()  # killed before the group had it
    with pytest.raises(OutputMissingError, match="was being written anew"):
        start("fail")
    seeks.clear()
    task = start("rewrite")
    assert seeks == {("t", 0): 2}
    put(task, 2)
    task.pre_commit({("t", 0): 3})
    task.stop()  # the group's offset is the one that it had before all this
    start("fail").stop()
    assert (tmp_path / "out.txt").read_text().splitlines() == ["a", "b", "c"]


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = FileStreamSinkTask()
    task.start({"file": str(tmp_path / "out")})

    def put(value: str) -> None:
        task.put([SinkRecord("t", 0, 0, None, value, (), 0)])

    put("one")
    output = task._file
    file = output._file

    class Full:
        """Takes some bytes, then there is no more room."""

        def __getattr__(self, name: str) -> Any:
            return getattr(file, name)

        def write(self, data: bytes) -> int:
            if len(data) < 6:
                raise OSError(28, "No space left on device")
            return file.write(data[:2])

    monkeypatch.setattr(output, "_file", Full())
    with pytest.raises(OSError, match=r"No space.*out'"):
        put("second")
    assert (tmp_path / "out").read_text() == "one\n"
    monkeypatch.setattr(output, "_file", file)
    put("second")
    assert (tmp_path / "out").read_text() == "one\nsecond\n"


def test_several_tasks_cannot_write_a_file_anew() -> None:
    config = {"file": "f", "on.missing.output": "rewrite", "tasks.max": "2"}
    assert "tasks.max must be 1" in FileStreamSink.validate(config)["on.missing.output"][0]


def test_what_another_task_wrote_before_it_got_its_partitions_is_seen(tmp_path: Path) -> None:
    """Seen live: both tasks had started on an empty file, and the other one wrote and committed."""
    path = tmp_path / "out.txt"
    task = FileStreamSinkTask()
    task.context = SimpleNamespace(committed=lambda: {("t", 0): 1})  # type: ignore[assignment]
    task.start({"file": str(path)})
    path.write_text("a line\n")
    task.open([("t", 0)])
    assert path.read_text() == "a line\n"
    task.stop()
    path.unlink()
    task.start({"file": str(path)})
    task.open([("another", 0)])  # which the group has read nothing of
    path.unlink()
    task.stop()
    task.start({"file": str(path)})
    with pytest.raises(OutputMissingError, match="1 records were committed"):
        task.open([("t", 0)])
    task.stop()


def two_topics(folder: Path, group: dict[tuple[str, int], int], **more: str) -> FileStreamSinkTask:
    task = FileStreamSinkTask()
    task.context = FakeSinkContext(committed=group)
    task.start({"file": str(folder / "out.txt"), "tasks.max": "1", **more})
    return task


def put_lines(task: FileStreamSinkTask, topic: str, start: int, end: int) -> None:
    task.put([SinkRecord(topic, 0, n, None, f"{topic}{n}", (), 0) for n in range(start, end)])
    task.pre_commit({(topic, 0): end})


@pytest.mark.parametrize("topics", [{"topics": "a, b"}, {"topics.regex": "[ab]"}])
@pytest.mark.parametrize("how", ["removed", "cut"])
def test_a_topic_without_a_commit_hides_no_loss(
    tmp_path: Path, how: str, topics: dict[str, str]
) -> None:
    """The task that has it notes how far the file is written, for all topics."""
    task = two_topics(tmp_path, {}, **topics)
    task.open([("a", 0)])
    put_lines(task, "a", 0, 3)
    task.stop()
    out = tmp_path / "out.txt"
    out.unlink() if how == "removed" else out.write_text("a0\n")
    task = two_topics(tmp_path, {("a", 0): 3, ("other", 0): 9}, **topics)
    with pytest.raises(OutputMissingError, match="but 3 records were committed to it"):
        task.open([("b", 0)])
    task.stop()
    # A connector that reads "b" alone, as its group has no commit of it, misses nothing.
    task = two_topics(tmp_path, {("a", 0): 3}, topics="b")
    task.open([("b", 0)])
    task.stop()


def test_topics_that_come_one_by_one_are_all_written_anew(tmp_path: Path) -> None:
    group = {("a", 0): 3, ("b", 0): 2}
    task = two_topics(tmp_path, group, **{"topics": "a,b,c", "on.missing.output": "rewrite"})
    assert isinstance(task.context, FakeSinkContext)
    task.open([("c", 0)])
    assert task.context.seeks == {}
    put_lines(task, "c", 0, 1)
    task.open([("b", 0)])
    put_lines(task, "b", 0, 2)
    task.open([("a", 0)])
    assert task.context.seeks == {("a", 0): 0, ("b", 0): 0}
    put_lines(task, "a", 0, 3)
    task.open([("a", 0)])
    assert len(task.context.logged) == 1
    task.stop()
    task = two_topics(tmp_path, group, topics="a,b,c")
    task.open([("a", 0), ("b", 0), ("c", 0)])
    task.stop()
    assert (tmp_path / "out.txt").read_text().split() == ["c0", "b0", "b1", "a0", "a1", "a2"]


def started(
    folder: Path, group: Mapping[tuple[str, int], int], **config: str
) -> FileStreamSinkTask:
    """A task of topic `t` that got its partition, with the file `out.txt`."""
    task = FileStreamSinkTask()
    task.context = FakeSinkContext(committed=group)
    keys = {key.replace("_", "."): value for key, value in config.items()}
    task.start({"file": str(folder / "out.txt"), "topics": "t", "tasks.max": "1", **keys})
    task.open([("t", 0)])
    return task


def put(task: FileStreamSinkTask, *values: str) -> None:
    task.put([SinkRecord("t", 0, n, None, value, (), 0) for n, value in enumerate(values)])


GROUP = {("t", 0): 2}


def test_a_loss_that_was_accepted_is_none_at_the_next_start(tmp_path: Path) -> None:
    """That holds also if the task has written nothing since."""
    task = started(tmp_path, {})
    put(task, "a", "b")
    task.flush()
    task.stop()
    (tmp_path / "out.txt").unlink()
    started(tmp_path, GROUP, on_missing_output="accept").stop()
    started(tmp_path, GROUP).stop()
    assert (tmp_path / "out.txt").read_text() == ""


def test_an_empty_output_without_a_position_is_an_error(tmp_path: Path) -> None:
    """Another folder's file, or one of before there were positions."""
    with pytest.raises(OutputMissingError, match="is empty or was not there, but 2 records"):
        started(tmp_path, GROUP)


def test_a_torn_line_that_was_accepted_can_be_cut(tmp_path: Path) -> None:
    """The position that was noted then has the half line in it."""
    task = started(tmp_path, {})
    put(task, "a", "b")
    task.flush()
    task.stop()
    (tmp_path / "out.txt").write_text("x\nccc\ndd")
    task = started(tmp_path, GROUP, on_missing_output="accept")
    put(task, "ccc", "ddd")
    task.flush()
    task.stop()
    assert (tmp_path / "out.txt").read_text() == "x\nccc\nccc\nddd\n"


def test_a_rewrite_under_way_can_be_accepted_as_it_is(tmp_path: Path) -> None:
    task = started(tmp_path, {})
    put(task, "a", "b")
    task.flush()
    task.stop()
    (tmp_path / "out.txt").unlink()
    task = started(tmp_path, GROUP, on_missing_output="rewrite")
    put(task, "a")
    task.pre_commit({("t", 0): 1})
    task.stop()
    with pytest.raises(OutputMissingError, match="was being written anew when its task ended"):
        started(tmp_path, GROUP)
    started(tmp_path, GROUP, on_missing_output="accept").stop()
    started(tmp_path, GROUP).stop()
    assert (tmp_path / "out.txt").read_text() == "a\n"


def test_a_mark_that_says_nothing_has_the_rewrite_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("a\n")
    (tmp_path / ".out.txt.rewrite").write_text("")
    with pytest.raises(OutputMissingError, match="was being written anew when its task ended"):
        started(tmp_path, GROUP)
    task = started(tmp_path, GROUP, on_missing_output="rewrite")
    assert isinstance(task.context, FakeSinkContext)
    assert task.context.seeks == {("t", 0): 0}
    task.stop()


def test_a_torn_line_that_another_task_has_ended_gets_no_empty_line(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("half")
    task = started(tmp_path, {}, tasks_max="2")
    tear(tmp_path, "\n")
    put(task, "a")
    task.stop()
    assert (tmp_path / "out.txt").read_text() == "half\na\n"


def test_a_pipe_is_no_output_that_can_be_lost(tmp_path: Path) -> None:
    """Nothing of it can be looked at, and nothing is noted beside it."""
    os.mkfifo(tmp_path / "out.txt")
    former = tmp_path / ".out.txt.position"  # of a file that had the name before
    former.write_text('{"size": 3, "tail": ""}')
    read = os.open(tmp_path / "out.txt", os.O_RDONLY | os.O_NONBLOCK)
    task = started(tmp_path, GROUP)
    former.unlink()
    put(task, "a")
    task.flush()
    assert os.read(read, 100) == b"a\n"
    (tmp_path / "out.txt").unlink()
    put(task, "b")
    task.pre_commit({("t", 0): 2})
    assert os.read(read, 100) == b"b\n"
    task.stop()
    os.close(read)
    assert not list(tmp_path.iterdir())


def test_what_others_have_added_is_missed_as_well(tmp_path: Path) -> None:
    """Once the task has seen it: the file may be of several tasks."""
    task = started(tmp_path, {})
    put(task, "a")
    tear(tmp_path, "theirs\n")
    put(task)
    (tmp_path / "out.txt").write_text("a\n")
    with pytest.raises(OutputMissingError, match="was cut from 9 to 2 bytes while it was written"):
        put(task)
    task.stop()
