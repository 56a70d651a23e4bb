"""JSON objects with declared types give the same values and bad rows by line and in batches."""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data.both_ways import both
from support.depth import tries
from support.task.directory_runs import in_records
from support.task.source_tasks import Run, reasons, values

from headgate.connector import schema as s
from headgate.connector.api import SourceRecord
from headgate_connectors.directory import DirectorySource
from headgate_connectors.formats import readers
from headgate_connectors.formats.json_rows import JsonRows

TYPES = (
    "i8: int8, i64: int64, f: float64, g: float32, d: decimal(5,2), b: boolean, day: date, "
    "t: time, at: timestamp, text: string"
)
GOOD: dict[str, Sequence[str]] = {
    "i8": ("0", "-128", "127", "-0", "null"),
    "i64": ("9223372036854775807", "-9223372036854775808", "12"),
    "f": ("1.5", "-2e10", "0", "-0.0", "5e-324", "0e-999", "1E3", "1.7976931348623157e308"),
    "g": ("0.1", "16777217", "1.00000017881393421514957253748434595763683319091796875001", "1e-45"),
    "d": ("1", "-999.99", "1.500", "1.5e1", "0.00", "-0", '"2.5"', '"+1"', '".5"', '"1."'),
    "b": ("true", "false", "null"),
    "day": ('"2026-11-26"', '"0001-01-01"', '"9999-12-31"'),
    "t": ('"07:05"', '"23:59:59.999"', '"07:05:09.120000"'),
    "at": ('"2026-11-26T07:05:09.123Z"', '"2026-11-26 07:05+01:00"', '"9999-12-31T23:59:59.999Z"'),
    "text": (
        '""',
        '"a"',
        '"ü"',
        r'"\u00e9\n\"\\"',
        '"東京"',
        r'"\ud83d\ude00"',
        r'"\u0000"',
        '"{"',
    ),
}
BAD: dict[str, Sequence[str]] = {
    "i8": ("128", "1.0", '"1"', "1e2", "true", "{}", "01", "+1", "NaN"),
    "i64": ("9223372036854775808", "9" * 60, "[1]", "-"),
    "f": (
        "1e999",
        "1e-400",
        "NaN",
        "Infinity",
        '"1.5"',
        '"nan"',
        '"inf"',
        '"NaN"x',
        ".5",
        "1.",
        "0x1",
        "-1e-999",
    ),
    "g": ("1e39", "1e-60", "3.5e38", "0." + "0" * 60 + "1"),
    "d": (
        "1.2e-222",
        "1.005",
        "1000",
        "9" * 38,
        "9" * 39,
        "9" * 60,
        "1e40",
        "1e5",
        '"x"',
        '" 1"',
        "true",
        '""',
        "NaN",
    ),
    "b": ("1", '"true"', "True", "0"),
    "day": ('"2023-02-29"', "20260101", '"0000-01-01"', "{}"),
    "t": ('"24:00"', "7", '"07:05:09.1234"'),
    "at": ('"2026-11-26 07:05"', "1764140709", '"0001-01-01T00:00+01:00"'),
    "text": ("1", "null,", '"\t"', r'"\ud800"', r'"\x"', "{}", "[]", '"\udcff"', '"\0"'),
}
ODD_LINES = (
    *("", " ", "{", "}", "[]", "1", "null", '{"i8":1}{"i8":2}', '{"i8":1} ', ' {"i8":1}', "\ufeff"),
    *('{"other":1}', '{"i8":1,"i8":2}', '{"i8":1,}', "{}", '{"i8":\r1}', '{"i8":1}x', "\r"),
    *('{"text":"a', '{"i8": 1 , "text" : "x"}', '{"text":{}', '{"b":{"b":1}}', "{}{}"),
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BATCH_ROWS_MIN", 1)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 900)


def lines_of(chance: random.Random, count: int, wrong: float) -> list[str]:
    found: list[str] = []
    for _ in range(count):
        if chance.random() < wrong:
            found.append(chance.choice(ODD_LINES))
            continue
        bad = chance.choice([*GOOD]) if chance.random() < wrong else None
        names = [name for name in GOOD if chance.random() < 0.8]
        chance.shuffle(names)
        members = [f'"{one}":{chance.choice((BAD if one == bad else GOOD)[one])}' for one in names]
        found.append("{" + ",".join(members) + "}")
    return found


@pytest.mark.parametrize("seed", range(tries(30, 1000)))
def test_any_file_gives_the_same_both_ways(tmp_path: Path, seed: int, small_blocks: None) -> None:
    chance = random.Random(seed)
    end = chance.choice(["\n", "\r\n"])
    lines = lines_of(chance, chance.randint(0, 120), chance.choice([0, 0, 0.02, 0.3]))
    data = end.join(lines).encode("utf-8", "surrogateescape") + chance.choice([b"", end.encode()])
    cut = chance.randint(0, len(data))
    compressions: list[tuple[str, Callable[[bytes], bytes]]] = [
        *(("jsonl", bytes), ("jsonl.gz", gzip.compress)),
    ]
    ending, compress = chance.choice(compressions)
    path = tmp_path / f"a.{ending}"
    path.write_bytes(compress(data[:cut]))
    config = {"json.types": TYPES, "batch.size": str(chance.choice([1, 7, 2000]))}
    if chance.random() < 0.7:
        config["errors.tolerance"] = "all"
    both(tmp_path, config, lambda: path.write_bytes(compress(data)))


@pytest.mark.parametrize("name", GOOD)
def test_good_values_of_each_type_come_in_batches(tmp_path: Path, name: str) -> None:
    lines = [f'{{"{name}":{one}}}\n' for one in GOOD[name]] * 50
    (tmp_path / "a.jsonl").write_text("".join(lines))
    types = next(one for one in TYPES.split(", ") if one.startswith(f"{name}:"))
    found, in_batches = both(tmp_path, {"json.types": types})
    assert len(found) == len(lines)
    # A number that is almost 0, and a decimal with an exponent, are looked at by themselves.
    assert in_batches == (0 if name in ("f", "d") else len(lines))


@pytest.mark.parametrize("name", GOOD)
@settings(max_examples=tries(30, 500), deadline=None)
@given(data=st.data())
def test_any_json_is_the_same_value_or_no_row(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    some = st.sampled_from([*GOOD[name], *BAD[name]])
    some |= (
        st.one_of(
            *(st.floats(allow_nan=False, allow_infinity=False), st.integers(-300, 300)),
            *(st.text(max_size=5), st.booleans(), st.none(), st.datetimes().map(str)),
            *(st.dates().map(str), st.times().map(str), st.lists(st.integers(), max_size=2)),
        )
        .map(lambda one: json.dumps(one))
        .filter(lambda text: "\n" not in text)
    )
    some |= st.decimals(allow_nan=False, allow_infinity=False).map(str)
    some |= st.text("0123456789+-.:eE TZ", max_size=12).map(json.dumps)
    texts = data.draw(st.lists(some, min_size=1, max_size=5))
    folder = tmp_path_factory.mktemp("any")
    lines = "".join([f'{{"{name}":{one}}}\n' for one in texts])
    (folder / "a.jsonl").write_bytes(lines.encode("utf-8", "surrogateescape"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "BATCH_ROWS_MIN", 1)
        both(folder, {"json.types": TYPES, "errors.tolerance": "all"})


def test_objects_have_a_schema_in_lines_and_arrays(tmp_path: Path) -> None:
    rows = ['{"n":1,"price":2.50,"day":"2026-11-26"}', '{"price":"1"}', '{"n":null}']
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, ""]))
    (tmp_path / "b.json").write_text("[" + ", ".join(rows) + "]")
    types = "n: int64, price: decimal(10,2), day: date"
    config = {"path": str(tmp_path), "topic": "t", "json.types": types, "file.settle.ms": "0"}
    items = Run(DirectorySource, config).rest()
    schema = s.struct(
        {
            "n": s.INT64.as_optional(),
            "price": s.decimal_of(2, 10).as_optional(),
            "day": s.DATE_SCHEMA.as_optional(),
        }
    )
    assert [one.value_schema for one in items if isinstance(one, SourceRecord)] == [schema] * 6
    expected = [
        {"n": 1, "price": Decimal("2.50"), "day": date(2026, 11, 26)},
        {"n": None, "price": Decimal("1.00"), "day": None},
        {"n": None, "price": None, "day": None},
    ]
    assert values(items) == expected * 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"n":"1"}', 'member n is "1", expected int8'),
        ('{"n":128}', "member n is 128, expected int8, a whole number from -128 to 127"),
        ('{"m":1}', "member m is not in json.types (n, t, at): add it there"),
        ('{"n":1,"n":2}', "an object that has a member twice, expected each once"),
        ('{"t":1}', "member t is 1, expected string as text"),
        ('{"t":{"x":1}}', "member t is an object, expected string"),
        ('{"at":"2026-11-26 07:05"}', "expected a timestamp with its zone"),
        (r'{"t":"\ud800"}', "expected text that has a form in UTF-8"),
        ("[1]", "a list, expected an object, as json.types is set"),
        ("null", "null, expected an object"),
        ('{"n":1', "not JSON: "),
        ("[" * 100_000, "not JSON: "),
    ],
)
def test_what_does_not_hold_is_a_bad_record(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{line}\n{{"n":7}}\n')
    types = "n: int8, t: string, at: timestamp"
    config = {"errors.tolerance": "all", "json.types": types, "file.settle.ms": "0"}
    items = Run(DirectorySource, {"path": str(tmp_path), "topic": "t", **config}).rest()
    (told,) = reasons(items)
    assert f"{tmp_path}/a.jsonl at byte 0: " in told
    assert reason in told
    assert values(items) == [{"n": 7, "t": None, "at": None}]


def test_a_block_with_a_bad_line_is_read_line_by_line(tmp_path: Path) -> None:
    lines = [f'{{"n":{n}}}' for n in range(5000)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"n":x}', *lines, ""]))
    config = {"json.types": "n: int64", "errors.tolerance": "all", "batch.size": "200"}
    found, in_batches = both(tmp_path, config)
    assert len(found) == 10_001
    assert in_batches > 4_000


def test_times_of_all_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t":"07:05:09.5","at":"2026-11-26T07:05Z"}\n' * 200)
    found, in_batches = both(tmp_path, {"json.types": "t: time, at: timestamp"})
    assert in_batches == 200
    value = {"t": time(7, 5, 9, 500_000), "at": datetime(2026, 11, 26, 7, 5, tzinfo=UTC)}
    assert values(in_records(found)) == [value] * 200


def test_as_many_objects_as_lines_are_not_an_object_a_line(tmp_path: Path) -> None:
    lines = ['{"n":1}{"n":2}', " ", '{"n":3}'] * 100
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, ""]))
    found, in_batches = both(tmp_path, {"json.types": "n: int8", "errors.tolerance": "all"})
    assert (len(reasons(found)), len(values(found)), in_batches) == (100, 100, 0)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_floats_that_are_no_numbers_are_texts_as_a_sink_writes_them(text: str, kind: str) -> None:
    value = JsonRows({"f": kind}).value(f'{{"f":"{text}"}}')["f"]
    assert str(value) == str(float(text))
    with pytest.raises(ValueError, match="expected float"):
        JsonRows({"f": kind}).value(f'{{"f":"{text.lower()}"}}')
    with pytest.raises(ValueError, match="expected int64"):
        JsonRows({"f": "int64"}).value(f'{{"f":"{text}"}}')
