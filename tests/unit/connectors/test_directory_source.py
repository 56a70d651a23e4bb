"""DirectorySource on real files: what it reads, in which order, from which offset, and its reports
of bad input."""

import errno
import itertools
import json
import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.task.source_tasks import Offsets, Run, reasons, values

from headgate.connector.api import ExactlyOnceSupport, SkippedRecord, SourceItem, SourceRecord
from headgate.connector.config import ConfigError
from headgate_connectors.directory import DirectorySource


def run(
    folder: Path,
    offsets: Offsets | None = None,
    task: int = 0,
    *,
    until_idle: bool = True,
    **settings: str,
) -> Run:
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    config = {
        "path": str(folder),
        "topic": "t",
        "file.settle.ms": "0",
        "errors.tolerance": "all",
        **keys,
    }
    return Run(DirectorySource, config, offsets, task, until_idle=until_idle)


def test_json_lines_are_read_in_order_with_key_headers_and_offsets(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.jsonl").write_bytes(b'{"n":1}\n\n{"n": 2}\r\n')
    first, second = run(tmp_path).rest()
    assert isinstance(first, SourceRecord)
    assert first.value == '{"n":1}'
    assert first.key == "sub/a.jsonl"
    assert first.topic == "t"
    assert first.headers == (("headgate.file", "sub/a.jsonl"), ("headgate.position", 0))
    assert first.source_partition == {"file": "sub/a.jsonl"}
    crc = zlib.crc32(b'{"n":1}\n')
    stat = (tmp_path / "sub" / "a.jsonl").stat()
    assert {**first.source_offset, "heads": ""} == {
        "position": 8,
        "start": 0,
        "crc": crc,
        "prefix": crc,
        "stat": f"{stat.st_ino}:19:{stat.st_mtime_ns}:{stat.st_ctime_ns}",
        "heads": "",
    }
    assert isinstance(second, SourceRecord)
    assert second.value == '{"n": 2}'
    assert second.source_offset["position"] == 19


def test_each_format_by_its_extension(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,"a\n""b"""\n\n2,\n')
    (tmp_path / "b.tsv").write_text("id\ttext\n1\tx, y\n")
    (tmp_path / "c.txt").write_text("any\n\nthing\n")
    (tmp_path / "d.xml").write_text("<left alone/>")
    (tmp_path / "readme").write_text("left alone, too")
    subject = run(tmp_path)
    assert values(subject.rest()) == [
        '{"id":"1","text":"a\\n\\"b\\""}',
        '{"id":"2","text":""}',
        '{"id":"1","text":"x, y"}',
        "any",
        "",
        "thing",
    ]
    assert subject.context.told == [
        "files ending in '.xml' are left alone, such as d.xml: set format",
        "files without an extension are left alone, such as readme: set format",
    ]


def test_what_is_never_read_is_listed_as_it_is(tmp_path: Path) -> None:
    """A folder behind a symbolic link was "files ending in ''", and a name that is not UTF-8 a line
    in a log; the run ended as if all had been read."""
    folder, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "b.jsonl").write_text("2\n")
    folder.mkdir()
    (folder / "a.jsonl").write_text("1\n")
    (folder / "link").symlink_to(elsewhere)
    (folder / "file.jsonl").symlink_to(elsewhere / "b.jsonl")
    odd = os.fsencode(folder) + b"/x\xff.jsonl"
    Path(os.fsdecode(odd)).write_text("3\n")
    subject = run(folder)
    assert values(subject.rest()) == ["1", "2"], "links to files are read"
    name, link = sorted(subject.context.quarantined)
    assert link == (
        f"directory {folder}/link is a symbolic link, which is not followed: give path its target"
    )
    assert name == f"{folder}/'x\\udcff.jsonl' is not read: no UTF-8 in its name"
    assert sorted(subject.context.told) == [f"set aside {name}", f"set aside {link}"]
    (folder / "link").unlink()
    subject.rest()
    assert subject.context.quarantined == [name]
    assert run(folder, exclude="x*").context.quarantined == []


def test_what_is_no_file_is_told_and_costs_itself_alone(tmp_path: Path) -> None:
    """Once a link to itself failed the task, because the question for its kind raises."""
    (tmp_path / "a.jsonl").write_text("1\n")
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    (tmp_path / "nowhere.jsonl").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "folder.jsonl" / "b.jsonl").write_text("2\n")
    subject = run(tmp_path)
    assert values(subject.rest()) == ["1", "2"]
    assert sorted(subject.context.told) == [
        f"{name}.jsonl is left alone: it is no regular file, and no link to one"
        for name in ("loop", "nowhere", "pipe")
    ]


def test_names_that_are_skipped(tmp_path: Path) -> None:
    for name in (".a.jsonl", "_a.jsonl", "a.jsonl.tmp", "a.jsonl.part", "_headgate/a.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    assert run(tmp_path, format="lines").rest() == []


def test_bom_and_names_beyond_ascii(tmp_path: Path) -> None:
    (tmp_path / "größe 数.csv").write_bytes(b"\xef\xbb\xbfname\nJos\xc3\xa9\n")
    (tmp_path / "x.jsonl").write_bytes(b"\xef\xbb\xbf{}\n")
    records = run(tmp_path).rest()
    assert values(records) == ['{"name":"José"}', "{}"]
    assert records[0].source_partition == {"file": "größe 数.csv"}


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_files_are_shared_by_the_crc_of_their_path(tmp_path: Path, tasks: int) -> None:
    names = [f"f{n}.jsonl" for n in range(30)]
    for name in names:
        (tmp_path / name).write_text(f'"{name}"\n')
    shares = [
        [json.loads(v) for v in values(run(tmp_path, task=i, tasks_max=str(tasks)).rest())]
        for i in range(tasks)
    ]
    assert sorted(name for share in shares for name in share) == sorted(names)
    assert all(zlib.crc32(name.encode()) % tasks == i for i in range(tasks) for name in shares[i])


def test_new_files_and_growing_files_are_picked_up(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("1\n")
    subject = run(tmp_path)
    assert values(subject.rest()) == ["1"]
    with path.open("a") as file:
        file.write("2\n")
    (tmp_path / "b.jsonl").write_text("3\n")
    assert values(subject.rest()) == ["2", "3"]
    assert subject.poll() is None


def test_a_line_without_newline_waits_until_the_file_is_still(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n":1}\n{"n":')
    subject = run(tmp_path, file_settle_ms="100000")
    assert values(subject.poll() or []) == ['{"n":1}']
    assert subject.poll() == []  # bytes are unread: not idle
    with path.open("a") as file:
        file.write("2}\n")
    assert values(subject.rest()) == ['{"n":2}']


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a.jsonl", '1\n{"n":2}', '{"n":2}'),
        ("a.txt", "1\nabc", "abc"),
        ("a.txt", "1\nabc\r\r", "abc\r"),  # as where the newline is there
        ("a.csv", "n\n1\n2", '{"n":"2"}'),
    ],
)
def test_a_still_file_is_read_to_its_end(tmp_path: Path, name: str, text: str, value: str) -> None:
    (tmp_path / name).write_text(text)
    subject = run(tmp_path)
    records = subject.rest()
    assert values(records)[-1] == value
    assert records[-1].source_offset["position"] == len(text)


def test_a_half_written_last_line_is_told_and_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n":1}\n{"n":')
    subject = run(tmp_path)
    records = subject.rest()
    assert values(records) == ['{"n":1}']
    assert reasons(records) == []  # nothing is passed over
    (reason,) = subject.context.quarantined
    assert reason.startswith(f"{tmp_path}/a.jsonl at byte 8: the last line has no newline")
    with path.open("a") as file:
        file.write('2}\n{"n":3}\n')
    assert values(subject.rest()) == ['{"n":2}', '{"n":3}']
    assert subject.context.quarantined == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.csv"])
def test_while_following_a_last_line_waits_for_its_newline(tmp_path: Path, name: str) -> None:
    """However long it takes: a writer with a buffer has written half of it."""
    path = tmp_path / name
    path.write_text("1\n23")
    subject = run(tmp_path, until_idle=False, csv_header="false")
    assert len(values(subject.poll() or [])) == 1
    assert [subject.poll() for _ in range(5)] == [[]] * 5
    with path.open("a") as file:
        file.write("4\n")
    (value,) = values(subject.poll() or [])
    assert "234" in value


def test_bad_lines_cost_themselves_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'1\n{"a":\n\xff\xfe\nNaN\n2\n')
    records = run(tmp_path).rest()
    assert values(records) == ["1", "2"]
    said = reasons(records)
    assert [text.split(": ")[0] for text in said] == [
        f"{tmp_path}/a.jsonl at byte {n}" for n in (2, 8, 11)
    ]
    assert "not UTF-8" in said[1]
    skipped = [r for r in records if isinstance(r, SkippedRecord)]
    assert [r.source_offset["position"] for r in skipped] == [8, 11, 15]


def test_json_check_can_be_off(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("not json\n")
    assert values(run(tmp_path, json_check="false").rest()) == ["not json"]


def test_bad_csv_rows_cost_themselves_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b'a,b\n1,2\n3\n4,"lost\n5,6\n7,"x"y\n8,\xff\n9,"two\nlines"\n10,11,12\n13,14\n'
    )
    records = run(tmp_path).rest()
    found = [json.loads(value)["a"] for value in values(records)]
    assert found == ["1", "5", "9", "13"]
    assert [text.split(": ")[0].rpartition(" ")[2] for text in reasons(records)] == [
        "8", "10", "22", "29", "47",
    ]  # fmt: skip


SHORT_ROWS = {"csv.row.bytes.max": str(1 << 20)}


@pytest.mark.parametrize("end", ["", "5,6\n"])
def test_of_a_line_that_is_too_long_no_part_becomes_a_row(tmp_path: Path, end: str) -> None:
    """Once the part after the line's first megabyte was read as a row."""
    long = f'3,"{"x" * 1_200_000}",4\n'
    (tmp_path / "a.csv").write_text(f"a,b\n1,2\n{long}{end}")
    records = run(tmp_path, **SHORT_ROWS).rest()
    assert values(records) == ['{"a":"1","b":"2"}', '{"a":"5","b":"6"}'][: 2 if end else 1]
    (reason,) = reasons(records)
    assert "at byte 8: bad CSV row: a row longer than 1048576 bytes: close its quote" in reason


def test_two_tasks_of_a_process_have_each_their_own_limit_of_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"a\n{'x' * 2_000_000}\ny\n")
    short, long = run(tmp_path, **SHORT_ROWS), run(tmp_path)
    assert values(short.rest()) == ['{"a":"y"}']
    assert len(values(long.rest())) == 2


def test_a_line_that_is_too_long_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n" + "x" * 1_200_000)
    subject = run(tmp_path, until_idle=False, **SHORT_ROWS)
    assert values(subject.poll() or []) == ['{"a":"1","b":"2"}']
    assert subject.poll() == []
    with path.open("a") as file:
        file.write("x,3\n5,6\n")
    records = subject.rest()
    assert values(records) == ['{"a":"5","b":"6"}']
    assert len(reasons(records)) == 1


def test_a_quote_lost_at_the_end_costs_one_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,"open\n2,3\n4,5\n')
    records = run(tmp_path).rest()
    assert values(records) == ['{"a":"2","b":"3"}', '{"a":"4","b":"5"}']
    assert len(reasons(records)) == 1


def test_a_half_written_row_keeps_the_offset_of_the_row_before_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,"open\n2,3\n4')
    subject = run(tmp_path)
    records = subject.rest()
    for record in records:
        subject.offsets.commit(record)
    assert values(records) == ['{"a":"2","b":"3"}']
    assert len(reasons(records)) == 1
    again = run(tmp_path, subject.offsets)
    assert values(again.rest()) == []  # the row is not read twice
    assert len(again.context.quarantined) == 1


def test_a_csv_header_that_names_a_column_twice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a\n1,2\n")
    subject = run(tmp_path)
    assert subject.rest() == []
    assert subject.context.quarantined == [
        f"{tmp_path}/a.csv: the header row names a column twice: a, a"
    ]


def test_empty_files_and_lone_headers_are_idle(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "b.csv").write_text("")
    (tmp_path / "c.csv").write_text("a,b")
    (tmp_path / "d.csv").write_text("a,b\n")
    (tmp_path / "e.parquet").write_text("")
    assert run(tmp_path).rest() == []


def test_a_vanished_directory_is_told_once_and_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text("1\n2\n")
    offsets = Offsets()
    subject = run(folder, offsets)
    assert values(subject.rest()) == ["1", "2"]
    folder.rename(tmp_path / "away")
    records = subject.rest()
    (reason,) = reasons(records)
    assert reason.startswith(f"directory {folder} cannot be listed: ")
    assert subject.poll() is None
    (tmp_path / "away").rename(folder)
    with (folder / "a.jsonl").open("a") as file:
        file.write("3\n")
    assert values(subject.rest()) == ["3"]
    assert f"directory {folder} is there again" in subject.context.told


def test_a_directory_that_is_gone_is_told_instead_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('1\n{"half":')
    subject = run(folder, file_settle_ms="100000")
    assert values(subject.poll() or []) == ["1"]
    folder.rename(tmp_path / "away")
    (reason,) = reasons(subject.poll() or [])
    assert reason.startswith("directory ")


def test_an_altered_offset_beyond_the_end_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    offsets = Offsets()
    offsets.stored[(("file", "a.jsonl"),)] = {"position": 10}
    subject = run(tmp_path, offsets)
    assert subject.rest() == []
    (reason,) = subject.context.quarantined
    assert "it was read up to byte 10 and is only 2 bytes long now" in reason


def test_a_file_that_vanishes_half_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n2\n")
    (tmp_path / "b.jsonl").write_text('3\n{"half":')
    subject = run(tmp_path, file_settle_ms="100000")
    assert values(subject.poll() or []) == ["1", "2", "3"]
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b.jsonl").unlink()
    assert subject.rest() == []
    reason = f"{tmp_path}/b.jsonl at byte 2: vanished with bytes unread"
    assert subject.context.quarantined == [reason]


def test_a_file_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("1\n2\n")
    subject = run(tmp_path)
    subject.rest()
    path.rename(tmp_path / "_a")
    assert subject.rest() == []
    (tmp_path / "_a").rename(path)
    with path.open("a") as file:
        file.write("3\n")
    assert values(subject.rest()) == ["3"]


def test_a_file_that_may_not_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    really_open = Path.open

    def refuse(self: Path, *arguments: str) -> object:  # root may read everything
        if self.name == "a.jsonl":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return really_open(self, *arguments)

    monkeypatch.setattr(Path, "open", refuse)
    subject = run(tmp_path)
    assert subject.rest() == []
    assert "Permission denied" in subject.context.quarantined[0]


def test_batches_have_a_limit_and_join_small_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f"{n}\n" for n in range(25)))
    for n in range(5):
        (tmp_path / f"b{n}.jsonl").write_text("0\n")
    subject = run(tmp_path, batch_size="10")
    assert [len(subject.poll() or []) for _ in range(4)] == [10, 10, 10, 0]


def test_the_rate_limit(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n" * 30)
    subject = run(tmp_path, records_per_second="100")
    first = subject.poll()
    assert first is not None
    assert 1 <= len(first) <= 10
    subject.context.stopping = True
    assert [subject.poll() for _ in range(3)].count([]) >= 1  # told to stop while it waits its turn


@pytest.mark.exhaustive
def test_a_row_longer_than_any_row_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a\n1\n"' + "x\n" * 700_000 + "2\n")
    records = run(tmp_path, **SHORT_ROWS).rest(polls=1000)
    assert values(records)[:2] == ['{"a":"1"}', '{"a":"x"}']
    assert values(records)[-1] == '{"a":"2"}'
    assert "close its quote, or raise csv.row.bytes.max" in reasons(records)[0]


LINES = st.lists(
    st.sampled_from(
        [b"1\n", b'{"a":"\xc3\xa9"}\r\n', b"\n", b"bad\n", b"\xff\n", b"  \n", b"22\n"]
    ),
    max_size=25,
)
ROWS = st.lists(
    st.sampled_from([b"1,2\n", b'"a\nb",c\r\n', b"\n", b"1\n", b"\xff,1\n", b'x,"y\n', b"3,4\n"]),
    max_size=25,
)


@given(
    body=st.one_of(LINES.map(lambda x: ("a.jsonl", x)), ROWS.map(lambda x: ("a.csv", x))),
    batch=st.integers(1, 7),
    data=st.data(),
)
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_from_the_offset_of_any_record_the_rest_follows_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    body: tuple[str, list[bytes]],
    batch: int,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("in")
    name, parts = body
    (folder / name).write_bytes(b"".join([b"a,b\n" if name == "a.csv" else b"", *parts]))
    whole = run(folder).rest()
    assert run(folder, batch_size=str(batch)).rest() == whole
    passed = [r for r in whole if r.source_offset.get("start") is not None]
    if not passed:
        return
    stop = data.draw(st.integers(0, len(passed) - 1))
    offsets = Offsets()
    offsets.commit(passed[stop])
    assert (
        run(folder, offsets, batch_size=str(batch)).rest() == whole[whole.index(passed[stop]) + 1 :]
    )


@given(cuts=st.lists(st.integers(0, 60), max_size=6), batch=st.integers(1, 4))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_file_that_grows_in_any_pieces_reads_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, name: str, cuts: list[int], batch: int
) -> None:
    content = {
        "a.jsonl": '{"a":"é"}\n[1,\n2\r\n\n"three"\n{"four":4}\n5\n'.encode(),
        "a.csv": 'a,b\n1,"two\nlines"\n3,é\n4\n"5","6"\r\n7,8\n'.encode(),
    }[name]
    folder = tmp_path_factory.mktemp("in")
    (folder / name).write_bytes(content)
    whole = run(folder).rest()
    (folder / name).write_bytes(b"")
    growing = run(folder, file_settle_ms="100000", batch_size=str(batch))
    result: list[SourceItem] = []
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    for start, end in itertools.pairwise(edges):
        with (folder / name).open("ab") as file:
            file.write(content[start:end])
        while found := growing.poll():
            result += found
    assert [_plain(record) for record in result] == [_plain(record) for record in whole]


def _plain(record: SourceItem) -> SourceItem:
    """Return the record without what the file system shows of its file."""
    marks = {"stat": "", "heads": ""}
    return replace(record, source_offset={**record.source_offset, **marks})


def test_exactly_once_is_supported_and_offsets_are_checked() -> None:
    assert DirectorySource.exactly_once_support({}) is ExactlyOnceSupport.SUPPORTED
    assert DirectorySource.can_define_transaction_boundaries({}) is ExactlyOnceSupport.UNSUPPORTED
    assert DirectorySource.alter_offsets({}, [({"file": "a"}, {"position": 0}), ({}, None)])
    for partition, offset in (
        ({}, {"position": 1}),
        ({"file": "a"}, {}),
        ({"file": "a"}, {"position": -1}),
    ):
        with pytest.raises(ConfigError):
            DirectorySource.alter_offsets({}, [(partition, offset)])


def test_an_altered_offset_needs_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n2\n3\n")
    offsets = Offsets()
    offsets.stored[(("file", "a.jsonl"),)] = {"position": 2}
    assert values(run(tmp_path, offsets).rest()) == ["2", "3"]


def test_relative_paths_are_opened_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("1\n")
    monkeypatch.chdir(tmp_path)
    subject = Run(DirectorySource, {"path": "in", "topic": "t"})
    monkeypatch.chdir("/")
    assert values(subject.rest()) == ["1"]
    assert subject.config["path"] == "in"
