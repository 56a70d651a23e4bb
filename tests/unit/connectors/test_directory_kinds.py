"""Formats, compressions, encodings and choices of a DirectorySource, and files set aside."""

import bz2
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from support.task.source_tasks import Offsets, Run, reasons, values

from headgate.connector.api import SourceRecord
from headgate_connectors.directory import BadFileError, DirectorySource
from headgate_connectors.files.reader import ReadOptions
from headgate_connectors.formats.readers import open_reader

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def run(
    folder: Path, offsets: Offsets | None = None, *, until_idle: bool = True, **settings: str
) -> Run:
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    config = {"path": str(folder), "topic": "t", "file.settle.ms": "0", **keys}
    return Run(DirectorySource, config, offsets, until_idle=until_idle)


@pytest.mark.parametrize("end", COMPRESS)
@pytest.mark.parametrize("stop", range(5))
def test_compressed_files_are_read_on_from_any_record(tmp_path: Path, end: str, stop: int) -> None:
    """Positions are those of the content; a member that is appended goes on with it."""
    compress = COMPRESS[end]
    path = tmp_path / f"a.csv{end}"
    path.write_bytes(compress(b'n,t\n1,a\n2,"x\ny"\n') + compress(b"3,c\n4,d\n5,e\n"))
    whole = run(tmp_path, batch_size="2").rest()
    assert [json.loads(value)["n"] for value in values(whole)] == ["1", "2", "3", "4", "5"]
    offsets = Offsets()
    offsets.commit(whole[stop])
    with path.open("ab") as file:
        file.write(compress(b"6,f\n"))
    found = [json.loads(value)["n"] for value in values(run(tmp_path, offsets).rest())]
    assert found == ["1", "2", "3", "4", "5", "6"][stop + 1 :]


@pytest.mark.parametrize("content", [b"", b"1\n2\n"])
@pytest.mark.parametrize("zeros", [1, 512, 100_000])
def test_zeros_behind_gzip_are_padding(tmp_path: Path, content: bytes, zeros: int) -> None:
    """Tape drives and tar leave them; gzip reads such files."""
    data = gzip.compress(content) + bytes(zeros)
    (tmp_path / "a.jsonl.gz").write_bytes(data + gzip.compress(b"3\n"))
    (tmp_path / "b.jsonl.gz").write_bytes(data + b"x")
    (tmp_path / "c.jsonl.gz").write_bytes(bytes(zeros))
    subject = run(tmp_path)
    found = values(subject.rest())
    assert found[: len(content) // 2 + 1] == [*content.decode().split(), "3"]
    assert sorted(text.split(": ")[0] for text in subject.context.quarantined) == [
        f"{tmp_path}/{name}.jsonl.gz" for name in "bc"
    ]


@pytest.mark.parametrize("end", COMPRESS)
def test_a_compressed_file_that_was_replaced_is_read_from_its_beginning(
    tmp_path: Path, end: str
) -> None:
    path = tmp_path / f"a.jsonl{end}"
    path.write_bytes(COMPRESS[end](b"1\n2\n3\n"))
    offsets = Offsets()
    for record in run(tmp_path, offsets).rest():
        offsets.commit(record)
    path.write_bytes(COMPRESS[end](b"1\n9\n3\n4\n"))
    assert values(run(tmp_path, offsets).rest()) == ["1", "9", "3", "4"]


@pytest.mark.parametrize("end", COMPRESS)
def test_a_cut_compressed_file_is_set_aside_and_read_on_when_it_is_whole(
    tmp_path: Path, end: str
) -> None:
    lines = b"".join(b"%d\n" % n for n in range(50_000))
    data = COMPRESS[end](lines)
    path = tmp_path / f"a.jsonl{end}"
    path.write_bytes(data[: len(data) // 2])
    (tmp_path / "b.jsonl").write_text('"b"\n')
    subject = run(tmp_path)
    first = values(subject.rest())
    assert '"b"' in first
    (reason,) = subject.context.quarantined
    assert reason == f"{path}: its compressed data end in the middle"
    path.write_bytes(data)
    rest = values(subject.rest())
    assert [value for value in first + rest if value != '"b"'] == lines.decode().split()
    assert subject.context.quarantined == []


@pytest.mark.parametrize("end", COMPRESS)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "lines"])
def test_what_a_cut_compressed_file_ends_with_is_no_row(
    tmp_path: Path, kind: str, end: str
) -> None:
    """The cut may stand in the middle of a line, and half a line may look like a whole one."""
    rows = [str(n * 7919) for n in range(9_000)]
    head = "n\n" if kind == "csv" else ""
    data = COMPRESS[end]((head + "\n".join(rows) + "\n").encode())
    for part in range(20, 40, 2):
        path = tmp_path / f"{part}.{kind}{end}"
        path.write_bytes(data[: len(data) * part // 40])
    subject = run(tmp_path, format=kind, batch_size="700", poll_interval_ms="1")
    found: dict[str, list[str]] = {}
    for record in subject.rest():
        assert isinstance(record, SourceRecord)
        value = json.loads(str(record.value))["n"] if kind == "csv" else str(record.value)
        found.setdefault(record.source_partition["file"], []).append(value)
    assert all(values == rows[: len(values)] for values in found.values())
    assert len(subject.context.quarantined) == 10


@pytest.mark.parametrize("kind", ["csv", "jsonl", "lines"])
def test_a_reader_of_a_cut_file_gives_whole_rows_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"0\n1234\n5678\n", 0)[:-10])
    reader: Any = open_reader(kind, path, None, "gzip", ReadOptions())
    assert [row.value for row in reader.read(9, True)][-1] in ("1234", '{"0":"1234"}')


def test_while_following_a_cut_compressed_file_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"1\n2\n" * 100)[:-9])
    subject = run(tmp_path, until_idle=False)
    for _ in range(5):
        assert subject.poll() is not None  # not idle
    assert subject.context.quarantined == []


def test_corrupt_compressed_data_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"not gzip at all")
    (tmp_path / "b.jsonl").write_text("1\n")
    subject = run(tmp_path)
    assert values(subject.rest()) == ["1"]
    assert "its gzip data are corrupt" in subject.context.quarantined[0]


def test_compressions_that_are_not_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.xz").write_bytes(b"\xfd7zXZ")
    subject = run(tmp_path)
    assert subject.rest() == []
    assert subject.context.told == [
        "files ending in '.xz' are left alone, such as a.jsonl.xz: read are gzip, bzip2, zstd"
    ]


ARRAY = (
    '\ufeff [ {"a": 1,\r\n  "t": "x, ] y\\n"}, [1,\n 2],\n "é", 12345678901234567890.10, null ]\n'
)
ELEMENTS = ['{"a": 1,"t": "x, ] y\\n"}', "[1,2]", '"é"', "12345678901234567890.10", "null"]


@pytest.mark.parametrize("stop", range(-1, 5))
def test_elements_of_a_json_array_are_records(tmp_path: Path, stop: int) -> None:
    (tmp_path / "a.json").write_text(ARRAY)
    whole = run(tmp_path, batch_size="2").rest()
    assert values(whole) == ELEMENTS
    offsets = Offsets()
    if stop >= 0:
        offsets.commit(whole[stop])
    assert values(run(tmp_path, offsets, batch_size="2").rest()) == ELEMENTS[stop + 1 :]


@pytest.mark.parametrize("cut", range(1, len(ARRAY.encode()) - 2))
def test_a_json_array_that_is_half_written_is_read_on(tmp_path: Path, cut: int) -> None:
    data = ARRAY.encode()
    path = tmp_path / "a.json"
    path.write_bytes(data[:cut])
    subject = run(tmp_path, until_idle=False)
    found = values(subject.poll() or []) + values(subject.poll() or [])
    assert subject.context.quarantined == []
    path.write_bytes(data)
    assert found + values(subject.rest()) == ELEMENTS


@pytest.mark.parametrize("stop", range(4))
def test_an_array_is_read_on_behind_letters_with_two_forms(tmp_path: Path, stop: int) -> None:
    """cp932 has some letters twice, and Python writes them in the other form."""
    data = b'["\xed\x40", "\x87\x90b", "\x81\xe0", "c"]'
    (tmp_path / "a.json").write_bytes(data)
    whole = run(tmp_path, encoding="cp932").rest()
    assert values(whole) == ['"\u7e8a"', '"\u2252b"', '"\u2252"', '"c"']
    starts = [one.source_offset["position"] for one in whole]
    assert starts == [data.index(b",", 0), data.index(b",", 7), data.index(b",", 14), len(data) - 1]
    offsets = Offsets()
    offsets.commit(whole[stop])
    os.utime(tmp_path / "a.json")  # so that its content is compared
    assert values(run(tmp_path, offsets, encoding="cp932").rest()) == values(whole)[stop + 1 :]


def test_a_json_file_may_be_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a":1}\n{"a":2}\n')
    assert values(run(tmp_path).rest()) == ['{"a":1}', '{"a":2}']


@pytest.mark.parametrize("text", ["[1, NaN, 3]", "[1 2]", "[1, 2] 3"])
def test_what_is_no_array_is_set_aside_at_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.jsonl").write_text('"b"\n')
    subject = run(tmp_path)
    assert '"b"' in values(subject.rest())
    assert "this is one JSON array, and at byte" in subject.context.quarantined[0]


def test_csv_options(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("'a;b';NULL\n;2\n")
    settings = {"csv_delimiter": ";", "csv_quote": "'", "csv_header": "false"}
    found = values(run(tmp_path, csv_null="NULL", **settings).rest())
    assert found == ['{"c1":"a;b","c2":null}', '{"c1":"","c2":"2"}']
    found = values(run(tmp_path, csv_null="", **settings).rest())
    assert found[1] == '{"c1":null,"c2":"2"}'


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt"])
def test_an_encoding(tmp_path: Path, name: str) -> None:
    text = {"a.csv": "n\nJosé\n", "a.jsonl": '"José"\n', "a.json": '["José"]', "a.txt": "José\n"}
    (tmp_path / name).write_text(text[name], encoding="latin-1")
    assert "José" in values(run(tmp_path, encoding="latin-1").rest())[0]
    subject = run(tmp_path)
    assert subject.rest() == []
    assert "encoding" in subject.context.quarantined[0]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt", "a.csv.gz"])
@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_wide_encodings_are_set_aside_by_name(tmp_path: Path, name: str, encoding: str) -> None:
    """Without a byte order mark it is valid UTF-8, and with Latin-1 everything is valid."""
    data = "12\n3\n".encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / "b.txt").write_text("good\n")
    for more in ({}, {"encoding": "latin-1", "errors_tolerance": "all"}):
        subject = run(tmp_path, **more)
        assert values(subject.rest()) == ["good"]
        assert "UTF-16 or UTF-32, expected UTF-8: convert it" in subject.context.quarantined[0]


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_wide_text_beyond_ascii_is_set_aside(tmp_path: Path, name: str, encoding: str) -> None:
    """All its bytes are those of ASCII, so it came out as other text."""
    data = "имя\nПётр\n".encode(encoding)
    assert data.isascii() and data.decode() != "имя\nПётр\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / "b.txt").write_bytes(b"\0good\n\nx\n")
    subject = run(tmp_path, errors_tolerance="all")
    assert values(subject.rest()) == ["\0good", "", "x"]
    assert "UTF-16 or UTF-32, expected UTF-8: convert it" in subject.context.quarantined[0]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ('{"a":1}\n{"a":2}\n'.encode("utf-16-le"), 3),
        ('{"a":1}\n{"a":2}\n'.encode("utf-16-be"), 2),
        (b'\xef\xbb\xbf{"a":1}', 1),
    ],
    ids=["UTF-16", "UTF-16, big-endian", "byte order mark"],
)
@pytest.mark.parametrize("types", ["", "a: int64"])
def test_another_encoding_in_the_middle_costs_its_lines(
    tmp_path: Path, data: bytes, told: int, types: str
) -> None:
    """As of a shell that appends in UTF-16, and of files that were joined."""
    (tmp_path / "a.jsonl").write_bytes(b'{"a":0}\n' + data + b'\n{"a":3}\n')
    records = run(tmp_path, errors_tolerance="all", json_types=types).rest()
    expected = [{"a": 0}, {"a": 3}]
    assert values(records) == (expected if types else ['{"a":0}', '{"a":3}'])
    assert len(reasons(records)) == told
    assert all("not JSON" in reason for reason in reasons(records))


def test_an_integer_of_more_digits_than_python_makes_is_json(tmp_path: Path) -> None:
    line = f'{{"a":{"9" * 5000}}}'
    (tmp_path / "a.jsonl").write_text(f"{line}\n")
    assert values(run(tmp_path).rest()) == [line]


def test_a_byte_order_mark_is_none_within_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\ufeffa\n\ufeffb\n")
    for encoding in ("utf-8", "utf-8-sig"):
        assert values(run(tmp_path, encoding=encoding).rest()) == ["a", "\ufeffb"]


def test_a_bad_file_costs_itself_alone_and_is_tried_again(tmp_path: Path) -> None:
    """The records before the fault are taken; what comes after it waits for the file."""
    bad = tmp_path / "a.csv"
    bad.write_bytes(b"n\n1\nJos\xe9\n3\n")
    (tmp_path / "b.csv").write_text("n\n5\n")
    subject = run(tmp_path)
    found = subject.rest()
    for record in found:
        subject.offsets.commit(record)
    assert values(found) == ['{"n":"1"}', '{"n":"5"}']
    assert subject.poll() is None
    assert subject.context.quarantined[0].startswith(f"{bad} at byte 4: bad CSV row: not UTF-8")
    again = run(tmp_path, subject.offsets)
    assert values(again.rest()) == []
    assert len(again.context.quarantined) == 1
    bad.write_bytes(b"n\n1\nJose\n3\n")
    assert values(again.rest()) == ['{"n":"Jose"}', '{"n":"3"}']
    assert again.context.quarantined == []


def test_with_tolerance_bad_records_are_skipped_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n{\n3\n")
    subject = run(tmp_path, errors_tolerance="all")
    records = subject.rest()
    assert values(records) == ["1", "3"]
    assert len(reasons(records)) == 1
    assert subject.context.quarantined == []


def test_a_bad_file_can_fail_the_task(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"not parquet at all, but long")
    with pytest.raises(BadFileError, match=r"a\.parquet: it does not begin"):
        run(tmp_path, on_bad_file="fail").rest()
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "a.jsonl").write_text("{\n")
    assert len(reasons(run(tmp_path, on_bad_file="fail").rest())) == 1  # which fails the task


def test_include_and_exclude(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "x/a.txt", "x/y/c.txt", "x/y/d.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")

    def read(**settings: str) -> list[str]:
        return sorted(values(run(tmp_path, **settings).rest()))

    assert read(include="a.*") == ["a.txt", "x/a.txt"]
    assert read(include="x/*.txt") == ["x/a.txt"]
    assert read(include="x/**") == ["x/a.txt", "x/y/c.txt", "x/y/d.log"]
    assert read(include="**/*.txt", exclude="x/**/c.*,[!a].txt") == ["a.txt", "x/a.txt"]


def test_topics_by_path(tmp_path: Path) -> None:
    for name in ("eu/orders-1.jsonl", "us/users-7.jsonl", "other.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    subject = run(
        tmp_path, topic="${region}-${2}", topic_pattern=r"(?P<region>\w+)/(\w+)-\d+\.jsonl"
    )
    found = [record for record in subject.rest() if isinstance(record, SourceRecord)]
    topics = {record.key: record.topic for record in found}
    assert topics == {"eu/orders-1.jsonl": "eu-orders", "us/users-7.jsonl": "us-users"}
    assert "other.jsonl: its path does not match topic.pattern" in subject.context.quarantined[0]


@pytest.mark.parametrize(
    ("config", "key", "text"),
    [
        ({"topic": "e-${1}"}, "topic", "group of topic.pattern, which is not set"),
        ({"topic": "e-${2}", "topic.pattern": "(.*)"}, "topic", "has no group 2"),
        ({"csv.delimiter": "none"}, "csv.delimiter", "expected one ASCII character"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    config: dict[str, str], key: str, text: str
) -> None:
    assert text in DirectorySource.validate(config)[key][0]


@pytest.mark.parametrize(
    "name", ["utf-16", "utf-7", "iso2022_jp", "klingon", "unicode_escape", "raw-unicode-escape"]
)
def test_encodings_that_cannot_be_cut_into_lines_are_refused(name: str) -> None:
    config = {"path": "p", "topic": "t", "encoding": name}
    with pytest.raises(Exception, match="encoding"):
        DirectorySource.config_def().parse(config)
