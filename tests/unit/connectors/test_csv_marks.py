"""Quotes, escapes and blanks of CSV files: each text is what its writer meant."""

from pathlib import Path

import pytest
from support.task.directory_runs import by_batches, run
from support.task.source_tasks import values

from headgate_connectors.directory import DirectorySource
from headgate_connectors.formats import csv_file

ESCAPE = {"csv.escape": "\\"}


def rows(folder: Path, data: bytes, name: str = "a.csv", **settings: str) -> list[str]:
    (folder / name).write_bytes(data)
    subject = run(folder, **settings)
    found = values(subject.rest())
    assert not subject.context.quarantined
    return found


def test_an_escape_before_an_ordinary_character_is_text(tmp_path: Path) -> None:
    data = b'a,b\nC:\\new,"C:\\new"\n\\N,"\\N"\n\\",\\,\n\\\\n,"\\\\"\n'
    assert rows(tmp_path, data, **ESCAPE, **{"csv.null": "\\N"}) == [
        '{"a":"C:\\\\new","b":"C:\\\\new"}',
        '{"a":null,"b":"\\\\N"}',
        '{"a":"\\"","b":","}',
        '{"a":"\\\\n","b":"\\\\"}',
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_escaped_line_end_is_part_of_its_field(tmp_path: Path, end: str) -> None:
    data = f'a,b{end}x\\{end}y,1{end}"x\\{end}y",2{end}'.encode()
    shown = end.replace("\r", "\\r").replace("\n", "\\n")
    expected = [f'{{"a":"x{shown}y","b":"{n}"}}' for n in (1, 2)]
    assert rows(tmp_path, data, **ESCAPE) == expected


def test_a_quote_as_escape_is_the_one_that_is_doubled(tmp_path: Path) -> None:
    found = rows(tmp_path, b'a,b\n"x""y","z"\n', **{"csv.escape": '"'})
    assert found == ['{"a":"x\\"y","b":"z"}']


@pytest.mark.parametrize(("null", "written"), [("", '""'), ("NULL", '"NULL"'), ('"', '""""')])
def test_a_null_in_quotes_is_text_where_the_column_holds_text(
    tmp_path: Path, null: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "BATCH_ROWS_MIN", 1)
    plain = null if null != '"' else '""""'
    data = f'a,n,b\n{written},{written},"x""\ny"\nx,1,{plain}\n{plain},{plain},{written}\n'
    settings = {"csv.null": null}
    text = null.replace('"', '\\"')
    first = f'{{"a":"{text}","n":"{text}","b":"x\\"\\ny"}}'
    assert rows(tmp_path, data.encode(), **settings)[0] == first
    settings["csv.types"] = "n: int32"
    typed = rows(tmp_path, data.encode(), **settings)
    quoted = None if plain == null else null
    assert typed == [
        {"a": null, "n": None, "b": 'x"\ny'},
        {"a": "x", "n": 1, "b": quoted},
        {"a": quoted, "n": None, "b": null},
    ]
    assert values(by_batches(tmp_path, **settings, **{"file.settle.ms": "0"})) == typed


def test_a_null_in_quotes_does_not_make_an_inferred_column_text(tmp_path: Path) -> None:
    settings = {"csv.null": "", "csv.types": "infer"}
    found = rows(tmp_path, b'n,t\n"1","x"\n"",""\n', **settings)
    assert found == [{"n": 1, "t": "x"}, {"n": None, "t": ""}]


@pytest.mark.parametrize("header", ["true", "false"])
def test_blank_lines_before_the_first_row(tmp_path: Path, header: str) -> None:
    first = b"c1,c2\r\n" if header == "true" else b""
    data = b"\xef\xbb\xbf\r\n\n" + first + b"1,2\r\n"
    assert rows(tmp_path, data, **{"csv.header": header}) == ['{"c1":"1","c2":"2"}']


def test_a_last_row_of_blanks_without_a_newline(tmp_path: Path) -> None:
    assert rows(tmp_path, b"a\tb\n1\t\n\t", "a.tsv") == ['{"a":"1","b":""}', '{"a":"","b":""}']
    (tmp_path / "a.tsv").unlink()
    assert rows(tmp_path, b"a\n ") == ['{"a":" "}']
    (tmp_path / "a.csv").unlink()
    assert rows(tmp_path, b"a,b\n1,2\n  ", "b.csv") == ['{"a":"1","b":"2"}']


def test_two_marks_are_not_one_character() -> None:
    base = {"path": "in", "topic": "t"}
    for settings, key in (
        ({"csv.delimiter": '"'}, "csv.quote"),
        ({"csv.escape": ","}, "csv.escape"),
        ({"csv.comment": '"'}, "csv.comment"),
    ):
        (told,) = DirectorySource.validate({**base, **settings}).values()
        assert f"for configuration {key}: expected another character than csv." in told[0]
    for settings in ({"csv.escape": '"'}, {"csv.quote": "none"}, {"csv.comment": "#"}):
        assert not any(DirectorySource.validate({**base, **settings}).values())
