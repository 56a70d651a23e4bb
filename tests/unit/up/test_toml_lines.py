"""A key's line is found in every spelling that TOML has for it."""

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_runtime.up.toml_lines import index

TEXT = '''\
# a comment with [brackets] and = signs
top = 1
[a]            # a table
b = """
[not.a.table]
x = 1 \\"""
"""
"c.d" = 'lit # eral'
e.f . g = [ 1, # one
  "]", # two
]
h = { i = 1, "j.k" = [2, {l = 3}] }
[ a . "m n" ]
o = 1979-05-27T07:32:00Z
[[p.q]]
r = \'\'\'it''s\'\'\'
[[p.q]]
r = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("a",), 3),
        (("a", "b"), 4),
        (("a", "c.d"), 8),
        (("a", "e"), 9),
        (("a", "e", "f", "g"), 9),
        (("a", "h", "i"), 12),
        (("a", "h", "j.k"), 12),
        (("a", "m n"), 13),
        (("a", "m n", "o"), 14),
        (("p", "q"), 15),
        (("p", "q", "r"), 16),
    ],
)
def test_line_of_a_key(path: tuple[str, ...], line: int) -> None:
    tomllib.loads(TEXT)
    assert index(TEXT).line(path) == line


def test_a_key_that_is_not_there_has_the_line_of_its_table() -> None:
    assert index(TEXT).line(("a", "zzz", "y")) == 3
    assert index(TEXT).line(("zzz",)) is None


def test_windows_line_ends() -> None:
    assert index("[a]\r\nb = 1\r\n").line(("a", "b")) == 2


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("[a]\n[b]\n[a]", (("a",), 1, 3)),
        ('[a.b]\n[a."b"]', (("a", "b"), 1, 2)),
        ("x = 1\n'x' = 2", (("x",), 1, 2)),
        ("a.b = 1\na.b = 2", (("a", "b"), 1, 2)),
    ],
)
def test_what_stands_twice(text: str, repeated: object) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    assert index(text).repeated == [repeated]


@pytest.mark.parametrize("text", ["[a", 'x = "', "= 1", "x = [1, 2", "x = {a = 1", '"', "x ="])
def test_broken_text_ends_the_scan_quietly(text: str) -> None:
    index("[ok]\n" + text)
    assert index("[ok]\n" + text).line(("ok",)) == 1


_names = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=6)
_values = st.one_of(st.integers(), st.booleans(), st.text("ab#[]{}=\"'\\ ,\n", max_size=8))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@settings(max_examples=60)
@given(st.dictionaries(_names, st.dictionaries(_names, _values, max_size=4), max_size=4))
def test_every_key_of_any_two_levels_is_found(tables: dict[str, dict[str, Any]]) -> None:
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for table, pairs in tables.items():
        lines.append(f"[{_quoted(table)}]")
        expected[table,] = len(lines)
        for key, value in pairs.items():
            shown = _quoted(value) if isinstance(value, str) else str(value).lower()
            lines.append(f"{_quoted(key)} = {shown}")
            expected[table, key] = len(lines)
    text = "\n".join(lines)
    assert tomllib.loads(text) == tables
    found = index(text)
    assert {path: found.line(path) for path in expected} == expected
    assert found.repeated == []
