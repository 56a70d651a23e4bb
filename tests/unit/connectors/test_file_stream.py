"""FileStreamSource and FileStreamSink do what Java's do."""

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.task.source_tasks import Offsets, Run, values

from headgate.connector.api import DataError, ExactlyOnceSupport, SinkRecord
from headgate.connector.config import ConfigError
from headgate.testing import FakeSinkContext
from headgate_connectors.file_stream import FileStreamSource
from headgate_connectors.file_stream_sink import FileStreamSink


def run(path: Path, offsets: Offsets | None = None, **more: str) -> Run:
    config = {"file": str(path), "topic": "t", **{k.replace("_", "."): v for k, v in more.items()}}
    return Run(FileStreamSource, config, offsets)


def test_lines_offsets_and_all_three_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("é\r\nb\rc\n\nhalf".encode())
    records = run(path).rest()
    assert values(records) == ["é", "b", "c", ""]
    assert [r.source_offset for r in records] == [{"position": n} for n in (4, 6, 8, 9)]
    assert records[0].source_partition == {"filename": str(path)}


def test_it_waits_for_the_file_and_for_the_newline(tmp_path: Path) -> None:
    path = tmp_path / "f"
    subject = run(path)
    assert subject.poll() is None
    assert subject.poll() is None  # told once, however long it takes
    assert subject.context.told == [f"couldn't find file {path}, waiting for it to be created"]
    path.write_text("one\ntw")
    assert values(subject.rest()) == ["one"]
    with path.open("a") as file:
        file.write("o\r")
    assert subject.rest() == []  # it may be half a CRLF
    with path.open("a") as file:
        file.write("\nthree\n")
    assert values(subject.rest()) == ["two", "three"]
    assert subject.context.waited.count(1.0) == 5


class Reads:
    """A file; tells how many bytes were looked at for ends of lines, and when it is read."""

    def __init__(self, data: bytes, step: int = 1 << 20) -> None:
        self.looked_at = 0
        self.count = 0
        self.at_read: Callable[[int], None] = lambda _number: None
        self._file = BytesIO(data)
        self._step = step

    def read(self, size: int) -> bytes:
        self.count += 1
        self.at_read(self.count)
        return Looked(self._file.read(min(size, self._step)), self)

    def seek(self, position: int, whence: int = 0) -> int:
        return self._file.seek(position, whence)

    def close(self) -> None:
        self._file.close()

    def under(self, monkeypatch: pytest.MonkeyPatch) -> "Reads":
        monkeypatch.setattr(Path, "open", lambda *_: self)
        return self


class Looked(bytes):
    """Bytes that count how many of them are looked at. Their lines are counted, too."""

    reads: Reads

    def __new__(cls, data: bytes, reads: Reads) -> "Looked":
        made = super().__new__(cls, data)
        made.reads = reads
        return made

    def splitlines(self, keepends: bool = False) -> list[bytes]:
        self.reads.looked_at += len(self)
        return [Looked(line, self.reads) for line in super().splitlines(keepends)]

    def __add__(self, other: Any) -> "Looked":
        return Looked(bytes(self) + bytes(other), self.reads)

    def __radd__(self, other: Any) -> "Looked":
        return Looked(bytes(other) + bytes(self), self.reads)

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return Looked(found, self.reads) if isinstance(found, bytes) else found


@pytest.mark.parametrize("data", [b"x" * 200_000 + b"\n", b"ab\n" * 40_000, b"\r\r\n" * 30_000])
def test_no_byte_is_looked_at_twice_however_long_its_line_and_small_the_batch(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(data, step=1_000).under(monkeypatch)
    records = run(Path("f"), batch_size="7").rest(polls=20_000)
    monkeypatch.undo()
    assert values(records) == [text.decode() for text in data.splitlines()]
    assert reads.looked_at == len(data)


def test_a_stop_does_not_wait_for_the_end_of_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(b"one\n" + b"x" * 100_000, step=1_000).under(monkeypatch)
    subject = run(Path("f"))

    def stop(number: int) -> None:
        subject.context.stopping = number >= 5

    reads.at_read = stop
    assert values(subject.poll() or []) == ["one"]
    assert reads.count == 5


def test_a_poll_gives_no_more_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """That holds also if the lines left of one read are fewer than a batch, and the next read
    brings more."""
    Reads(b"a\n" * 20, step=10).under(monkeypatch)
    subject = run(Path("f"), batch_size="3")
    sizes = [len(list(subject.poll() or ())) for _ in range(8)]
    assert sizes == [3, 3, 3, 3, 3, 3, 2, 0]


@given(data=st.binary(max_size=40), steps=st.integers(1, 5), batch=st.integers(1, 3))
@settings(deadline=None)
def test_lines_end_alike_wherever_the_data_is_cut(data: bytes, steps: int, batch: int) -> None:
    data = data.translate(bytes(b"\r\n\n\rab"[code % 6] for code in range(256)))
    whole: list[tuple[Any, ...]] = []
    cut: list[tuple[Any, ...]] = []
    for found, step in ((whole, 1 << 20), (cut, steps)):
        with pytest.MonkeyPatch.context() as monkeypatch:
            Reads(data, step).under(monkeypatch)
            records = run(Path("f"), batch_size=str(batch)).rest()
            found += [(record.source_offset["position"], *values([record])) for record in records]
    assert cut == whole
    ended = data.removesuffix(b"\r").splitlines(keepends=True)
    lines = [line for line in ended if line.endswith((b"\r", b"\n"))]
    assert [text for _, text in cut] == [line.rstrip(b"\r\n").decode() for line in lines]


def test_malformed_bytes_become_replacement_characters(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("\ufffd\n".encode() + b"a\xff\n\xff\n")
    subject = run(tmp_path / "f")
    assert values(subject.rest()) == ["\ufffd", "a\ufffd", "\ufffd"]
    (told,) = subject.context.told
    assert "byte 5 is not UTF-8" in told and "DirectorySource" in told


@given(
    lines=st.lists(st.text(st.sampled_from("aé\r数"), max_size=4), max_size=12),
    batch=st.integers(1, 4),
    data=st.data(),
)
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_from_the_offset_of_any_record_the_rest_follows_exactly(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], batch: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("in") / "f"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    whole = [(r.source_offset, r.value) for r in run(path).rest()]  # type: ignore[union-attr]
    offsets = Offsets()
    stop = data.draw(st.integers(0, len(whole)))
    if stop:
        offsets.stored[(("filename", str(path)),)] = whole[stop - 1][0]
    rest = run(path, offsets, batch_size=str(batch)).rest()
    assert [(r.source_offset, r.value) for r in rest] == whole[stop:]  # type: ignore[union-attr]


def test_an_offset_of_a_wrong_type_fails(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    offsets = Offsets()
    offsets.stored[(("filename", str(tmp_path / "f")),)] = {"position": "1"}
    with pytest.raises(DataError, match="Offset position is the incorrect type"):
        run(tmp_path / "f", offsets).poll()


def test_a_shorter_file_than_the_offset_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    offsets = Offsets()
    offsets.stored[(("filename", str(tmp_path / "f")),)] = {"position": 10}
    subject = run(tmp_path / "f", offsets)
    assert subject.rest() == []
    assert "was read up to byte 10 and has 2 bytes" in subject.context.told[0]


def test_standard_streams_are_refused() -> None:
    for connector in (FileStreamSource, FileStreamSink):
        (error,) = connector.validate({})["file"]
        assert "not supported" in error
        assert connector.validate({"file": "f"}) == {}
    assert FileStreamSource.exactly_once_support({}) is ExactlyOnceSupport.UNSUPPORTED
    assert FileStreamSource.exactly_once_support({"file": "f"}) is ExactlyOnceSupport.SUPPORTED


@pytest.mark.parametrize(
    ("partition", "offset", "message"),
    [
        ({"filename": "f"}, {}, "either be null or contain the key 'position'"),
        ({"filename": "f"}, {"position": "1"}, "expected to be a Long value"),
        ({"filename": "f"}, {"position": True}, "expected to be a Long value"),
        ({"filename": "f"}, {"position": -1}, "non-negative"),
        ({}, {"position": 1}, "should contain the key 'filename'"),
        (None, {"position": 1}, "Partition objects cannot be null"),
    ],
)
def test_offsets_that_users_may_not_set(partition: Any, offset: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FileStreamSource.alter_offsets({"file": "f"}, [(partition, offset)])


def test_offsets_that_users_may_set() -> None:
    assert FileStreamSource.alter_offsets(
        {"file": "f"}, [({"filename": "g"}, {"position": 1}), ({"what": "ever"}, None)]
    )
    with pytest.raises(ConfigError, match="stdin is used"):
        FileStreamSource.alter_offsets({}, [])


def test_the_sink_appends_a_line_per_value(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before\n")
    connector = FileStreamSink()
    connector.start({"file": str(path), "topics": "t"})
    first, _ = connector.task_configs(2)
    task = FileStreamSink.TASK()
    task.start(first)
    task.put([SinkRecord("t", 0, n, None, v, (), 0) for n, v in enumerate(["é", 1.0, None, True])])
    task.put([])
    task.flush()
    assert path.read_text() == "before\né\n1.0\nnull\ntrue\n"
    task.stop()
    with pytest.raises(OSError, match="Couldn't find or create file"):
        (task := FileStreamSink.TASK()).start({"file": str(tmp_path / "no" / "file")})
    task.stop()


def test_half_of_a_surrogate_pair_is_refused_and_no_question_mark(tmp_path: Path) -> None:
    task = FileStreamSink.TASK()
    task.context = FakeSinkContext(reports=True)
    task.start({"file": str(tmp_path / "out"), "topics": "t"})
    texts = ["a", "\ud800", "b"]
    task.put([SinkRecord("t", 0, n, None, text, (), 0) for n, text in enumerate(texts)])
    assert (tmp_path / "out").read_text() == "a\nb\n"
    ((found, error),) = task.context.reported
    assert found.offset == 1 and "at t-0 offset 1 has no UTF-8" in str(error)
    task.stop()
    other = FileStreamSink.TASK()
    other.context = FakeSinkContext(reports=False)
    other.start({"file": str(tmp_path / "out"), "topics": "t"})
    with pytest.raises(DataError, match="at t-0 offset 1 has no UTF-8"):
        other.put([SinkRecord("t", 0, 1, None, "\ud800", (), 0)])
    other.stop()


def test_a_line_that_a_crash_has_cut_does_not_spoil_the_next(tmp_path: Path) -> None:
    """The cut line's record is delivered again. Appended to its first half, it would be lost."""
    path = tmp_path / "out"
    path.write_text("whole\nhal")
    task = FileStreamSink.TASK()
    task.context = SimpleNamespace(log=print, committed=dict)  # type: ignore[assignment]
    task.start({"file": str(path)})
    task.put([SinkRecord("t", 0, 0, None, "half", (), 0)])
    task.flush()
    task.stop()
    assert path.read_text().splitlines() == ["whole", "hal", "half"]


def test_what_was_put_is_on_disk_before_its_offsets_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    task = FileStreamSink.TASK()
    task.start({"file": str(tmp_path / "out")})
    task.put([SinkRecord("t", 0, 0, None, "one", (), 0)])
    task.pre_commit({("t", 0): 1})
    task.stop()
    assert synced[0] == 4  # then the position beside it
