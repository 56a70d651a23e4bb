"""Tests hold what users once ran into: docs/contribute/went-wrong.md names one for each."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "contribute" / "went-wrong.md"
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `([^`|]+)` \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    found = ROW.findall(text)
    heads = text.count("\n| what went wrong | now | test |\n")
    assert len(found) == text.count("\n|") - 2 * heads, "a row of a table is not read"
    return found


def names_in(file: Path) -> set[str]:
    """Names as pytest has them behind the file's: ``test_a``, ``TestB::test_c``."""
    found: set[str] = set()
    for part in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(part, ast.FunctionDef):
            found.add(part.name)
        elif isinstance(part, ast.ClassDef):
            inner = [one.name for one in part.body if isinstance(one, ast.FunctionDef)]
            found.update(f"{part.name}::{name}" for name in inner)
    return found


def test_there_are_rows_and_each_is_told_once() -> None:
    told = [what for what, _, _ in rows()]
    assert len(told) > 40
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("test", sorted({test for _, _, test in rows()}))
def test_the_test_that_a_row_names_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert name.rpartition("::")[2].startswith("test_")
    assert name in names_in(ROOT / file)
