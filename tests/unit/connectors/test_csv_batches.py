"""Rows of typed CSV files as batches have the same values, offsets and bad rows as one by one."""

import bz2
import gzip
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data.both_ways import both, run
from support.depth import tries
from support.task.directory_runs import in_records
from support.task.source_tasks import Offsets

from headgate.connector.batches import SourceBatch
from headgate_connectors.files import input
from headgate_connectors.formats import csv_file

TYPES = (
    "i8: int8, i64: int64, f: float64, g: float32, d: decimal(5,2), b: boolean, day: date, "
    "t: time, at: timestamp"
)
COLUMNS = ("i8", "i64", "f", "g", "d", "b", "day", "t", "at", "text")
GOOD: dict[str, Sequence[str]] = {
    "i8": ("0", "-128", "127", "007", "+5", "-0"),
    "i64": ("9223372036854775807", "-9223372036854775808", "12"),
    "f": ("1.5", "-2e10", "NaN", "Infinity", "-Infinity", "0", "-0.0", "1.", ".5", "+1", "5e-324"),
    "g": ("0.1", "16777217", "1.00000017881393421514957253748434595763683319091796875001", "1e-45"),
    "d": ("1", "-999.99", "1.500", "+2.5", "1.5e1", ".5", "0.00", "-0", "0" * 60 + "1"),
    "b": ("true", "False", "TRUE"),
    "day": ("2026-11-26", "0001-01-01", "9999-12-31", "2024-02-29"),
    "t": ("07:05", "00:00:00", "23:59:59.999", "07:05:09.120000", "07:05:09.5"),
    "at": (
        *("2026-11-26T07:05:09.123Z", "2026-11-26 07:05+01:00", "2026-11-26 07:05:09-0130"),
        *("9999-12-31T23:59:59.999Z", "0001-01-01T00:00Z", "2026-11-26 07:05", "1900-01-01 00:00"),
    ),
    "text": ("", "a", "ü", " a ", "a'b", "it is", "NULL", "東京"),
}
BAD: dict[str, Sequence[str]] = {
    "i8": ("128", " 1", "1.0", "0x1F", "", "٣", "1_0"),
    "i64": ("9223372036854775808", "9" * 60, "1e3", "-"),
    "f": ("nan", "inf", "1e999", "1e-400", " 1", "0x10", "1_0", "e5", ""),
    "g": ("1e39", "1e-60", "3.5e38", "x"),
    "d": (
        "1.005",
        "1000",
        "9" * 38,
        "9" * 60,
        "1.2e-222",
        "0." + "0" * 60 + "1",
        "0.001" + "0" * 60,
        "1" + "0" * 80,
        "NaN",
        "1e5",
        "--1",
        "1 ",
    ),
    "b": ("1", "yes", "", "t"),
    "day": ("2023-02-29", "0000-01-01", "2026-1-1", "20260101", "26.11.2026"),
    "t": ("24:00", "7:05", "07:05:60", "07:05:09.1234", "07:05:09Z"),
    "at": (
        *("2026-13-01 00:00Z", "2026-11-26", "0001-01-01T00:00+01:00", "2026-11-26T07:05:09.1234Z"),
        *("2026-11-26T24:00Z", "2026-11-26T07:05+25:00", "2026-03-29 02:30", "2026-10-25 02:30"),
    ),
    "text": ("\udcff", "\0"),
}
ODD_LINES = (
    *("", '"', 'a"b', "1,2", "# no row", " ", ",,,,,,,,,,", "\ufeff", '"x" ', "\r", '"a\nb"'),
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "BATCH_ROWS_MIN", 1)
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", 700)


def quoted(text: str, chance: random.Random) -> str:
    wanted = any(mark in text for mark in ',"\n\r') or chance.random() < 0.05
    return '"' + text.replace('"', '""') + '"' if wanted else text


def lines_of(chance: random.Random, count: int, wrong: float) -> list[str]:
    found: list[str] = []
    for _ in range(count):
        if chance.random() < wrong:
            found.append(chance.choice(ODD_LINES))
            continue
        bad = chance.choice(COLUMNS) if chance.random() < wrong else None
        texts = [chance.choice((BAD if one == bad else GOOD)[one]) for one in COLUMNS]
        found.append(",".join([quoted(text, chance) for text in texts]))
    return found


@pytest.mark.parametrize("seed", range(tries(24, 1000)))
def test_any_file_gives_the_same_both_ways(tmp_path: Path, seed: int, small_blocks: None) -> None:
    chance = random.Random(seed)
    end = chance.choice(["\n", "\r\n"])
    wrong = chance.choice([0, 0, 0.02, 0.3])
    lines = [",".join(COLUMNS), *lines_of(chance, chance.randint(0, 150), wrong)]
    data = end.join(lines).encode("utf-8", "surrogateescape") + chance.choice([b"", end.encode()])
    cut = chance.randint(0, len(data))
    ending, compress = chance.choice([("csv", bytes), ("csv.gz", gzip.compress)])
    path = tmp_path / f"a.{ending}"
    path.write_bytes(compress(data[:cut]))

    def grow() -> None:
        path.write_bytes(compress(data))

    settings = {"csv.types": TYPES, "csv.timezone": chance.choice(["UTC", "Europe/Berlin"])}
    settings["batch.size"] = str(chance.choice([1, 7, 2000]))
    if chance.random() < 0.7:
        settings["errors.tolerance"] = "all"
    if chance.random() < 0.3:
        settings |= {"csv.null": chance.choice(["", "0", "NULL"])}
    if chance.random() < 0.2:
        settings |= {"csv.comment": "#", "csv.escape": chance.choice(["none", "\\"])}
    both(tmp_path, settings, grow)


@pytest.mark.parametrize("column", COLUMNS)
def test_good_texts_of_each_type_come_in_batches(tmp_path: Path, column: str) -> None:
    texts = [one for one in GOOD[column] if one] * 50
    (tmp_path / "a.csv").write_text("\n".join([column, *texts, ""]))
    types = next((one for one in TYPES.split(", ") if one.startswith(f"{column}:")), "text: string")
    found, in_batches = both(tmp_path, {"csv.types": types, "csv.timezone": "UTC"})
    assert (len(found), in_batches) == (len(texts), len(texts))


@pytest.mark.parametrize("column", COLUMNS)
def test_each_text_is_the_same_value_or_no_row(
    tmp_path: Path, column: str, small_blocks: None
) -> None:
    types = next((one for one in TYPES.split(", ") if one.startswith(f"{column}:")), "text: string")
    config = {"csv.types": types, "csv.timezone": "UTC", "errors.tolerance": "all"}
    for number, text in enumerate([*GOOD[column], *BAD[column]]):
        folder = tmp_path / str(number)
        folder.mkdir()
        lines = f"{column},n\n{text},1\n"
        (folder / "a.csv").write_bytes(lines.encode("utf-8", "surrogateescape"))
        both(folder, config)


@pytest.mark.parametrize("column", COLUMNS)
@settings(max_examples=tries(30, 500), deadline=None)
@given(data=st.data())
def test_any_text_is_the_same_value_or_no_row(
    tmp_path_factory: pytest.TempPathFactory, column: str, data: st.DataObject
) -> None:
    characters = "0123456789+-.:eETZ NaInfty\u00e9"
    texts = data.draw(
        st.lists(
            st.sampled_from([*GOOD[column], *BAD[column]])
            | st.text(characters, min_size=1, max_size=12)
            | st.floats().map(repr)
            | st.decimals(allow_nan=False, allow_infinity=False).map(str)
            | st.datetimes().map(str)
            | st.dates().map(str)
            | st.integers(-200, 200).map(str),
            min_size=1,
            max_size=5,
        )
    )
    folder = tmp_path_factory.mktemp("any")
    lines = "\n".join([f"{column},n", *[f"{one},1" for one in texts], ""])
    (folder / "a.csv").write_bytes(lines.encode("utf-8", "surrogateescape"))
    types = next((one for one in TYPES.split(", ") if one.startswith(f"{column}:")), "text: string")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "BATCH_ROWS_MIN", 1)
        config = {"csv.types": types, "csv.timezone": "UTC", "errors.tolerance": "all"}
        both(folder, config)


def in_batches(folder: Path, lines: Sequence[str], **settings: str) -> tuple[int, int]:
    """Return the number of records of the file, and how many of them come in batches."""
    (folder / "a.csv").write_text("".join([f"{one}\n" for one in ("n,text", *lines)]))
    more = {key.replace("_", "."): value for key, value in settings.items()}
    base = {"csv.types": "n: int32", "errors.tolerance": "all", "batch.size": "200"}
    found, batched = both(folder, {**base, **more})
    return len(found), batched


NUMBERS = [f"{n},x" for n in range(1000)]


@pytest.mark.parametrize("bad", ["x,x", "1,x,x", "1", '1,"a', '1,"a"b', '1,a"b', "1,\r", "1,\0"])
def test_a_bad_row_costs_only_rows_near_it(tmp_path: Path, bad: str) -> None:
    count, batched = in_batches(tmp_path, [*NUMBERS[:500], bad, *NUMBERS[500:]])
    assert count == 1001 or bad in ('1,a"b', "1,\0")
    assert batched >= 500


def test_quoted_fields_and_blank_lines_come_in_batches(tmp_path: Path) -> None:
    lines = ['1,"a, b"', "", '"2","say ""x"""', '3,""', "", ""]
    assert in_batches(tmp_path, lines * 100) == (300, 300)


def test_rows_that_python_and_pyarrow_read_in_two_ways_come_one_by_one(tmp_path: Path) -> None:
    lines = ['1,"a\nb"', "2,a'b"]
    assert in_batches(tmp_path, [*NUMBERS, *lines, *NUMBERS]) == (2002, 1802)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1000),
        ({"csv_delimiter": ","}, 1000),
        ({"csv_quote": "none"}, 1000),
        ({"csv_escape": "\\", "csv_comment": "#"}, 1000),
        ({"encoding": "latin-1"}, 0),
        ({"batch_size": "99"}, 0),
    ],
)
def test_what_settings_leave_to_batches(
    tmp_path: Path, settings: dict[str, str], expected: int
) -> None:
    assert in_batches(tmp_path, NUMBERS, **settings) == (1000, expected)


@pytest.mark.parametrize("mark", ["#", "\\"])
def test_comments_and_escapes_are_read_one_by_one(tmp_path: Path, mark: str) -> None:
    settings = {"csv_escape": "\\", "csv_comment": "#"}
    count, batched = in_batches(tmp_path, [*NUMBERS, f"{mark}1,x", *NUMBERS], **settings)
    assert count >= 2000
    assert batched < count


def test_offsets_of_a_part_are_those_of_its_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join([f"{one}\n" for one in ("n,text", *NUMBERS)]))
    settings = {"csv.types": "n: int32"}
    expected = in_records(run(tmp_path, settings, by_batch=False).rest())
    (batch,) = run(tmp_path, settings, by_batch=True).rest()
    assert isinstance(batch, SourceBatch)
    part = batch.part(100, 50).part(10, 20)
    assert in_records([part]) == expected[110:130]
    assert part.source_offset == expected[129].source_offset  # type: ignore[union-attr]


@pytest.mark.parametrize("stop", [0, 500, 999])
def test_a_source_goes_on_one_by_one_or_by_batch(tmp_path: Path, stop: int) -> None:
    (tmp_path / "a.csv").write_text("".join([f"{one}\n" for one in ("n,text", *NUMBERS)]))
    settings = {"csv.types": "n: int32"}
    whole = in_records(run(tmp_path, settings, by_batch=True).rest())
    for by_batch in (False, True):
        offsets = Offsets()
        offsets.commit(whole[stop])
        rest = in_records(run(tmp_path, settings, offsets, by_batch=by_batch).rest())
        assert rest == whole[stop + 1 :]


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_a_compressed_file_is_decompressed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, compress: Any
) -> None:
    """Rows that are read one by one step back behind a block that was read."""
    lines = ["n,text", *NUMBERS, "x,x", *NUMBERS, '1,"a\nb"', *NUMBERS]
    data = "".join([f"{one}\n" for one in lines]).encode()
    (tmp_path / f"a.csv.{ending}").write_bytes(compress(data))
    begun: list[bool] = []
    real = input._Decompressed._begin
    monkeypatch.setattr(
        input._Decompressed, "_begin", lambda self: (begun.append(True), real(self))[1]
    )
    settings = {"csv.types": "n: int32", "errors.tolerance": "all", "batch.size": "200"}
    items = run(tmp_path, settings, by_batch=True).rest()
    assert len(in_records(items)) == 3002
    assert sum(isinstance(one, SourceBatch) for one in items) > 10
    assert len(begun) == 1


def test_a_step_back_is_made_from_memory_or_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input, "REMEMBERED_BYTES", 3000)
    monkeypatch.setattr(input, "CHUNK_BYTES", 100)
    content = random.Random(1).randbytes(20_000)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(content))
    file = input.open_input(path, None, "gzip").file
    chance = random.Random(2)
    for _ in range(400):
        at, size = chance.randrange(20_000), chance.randrange(3_000)
        if chance.random() < 0.7:
            at = max(0, file.tell() - chance.randrange(6_000))
        file.seek(at)
        assert file.read(size) == content[at : at + size]
    file.close()
