"""The file of ``headgate simulate``: TOML, read and checked whole, each fault with its line."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from headgate.simulation.study import Problem, Study, StudyError, read_study
from headgate_runtime.up import toml_lines

BYTE_ORDER_MARK = "\ufeff"
_EVENT = re.compile(r"\s*\[\[\s*events\s*\]\]")


class StudyFileError(Exception):
    """The study cannot be read or run; one line for each fault."""


def load_study(file: str) -> Study:
    """The study in `file`.

    Raises:
        StudyFileError: with all that is wrong with it.
    """
    try:
        text = Path(file).read_bytes().decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except FileNotFoundError:
        raise StudyFileError(f"{file}: no such file") from None
    except UnicodeDecodeError as error:
        raise StudyFileError(f"{file}: not a text in UTF-8: byte {error.start}") from None
    except OSError as error:
        raise StudyFileError(f"{file}: {error.strerror}") from None
    return parse_study(text, file)


def parse_study(text: str, file: str) -> Study:
    """The study that `text` describes; errors name it `file`. Raises as `load_study`."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise StudyFileError(f"{file}: not valid TOML: {error}") from None
    try:
        return read_study(document)
    except StudyError as error:
        lines = toml_lines.index(text)
        placed = [(_line(problem, text, lines) or 0, problem) for problem in error.problems]
        placed.sort(key=lambda one: one[0])
        shown = [f"{file}:{line}: {one}" if line else f"{file}: {one}" for line, one in placed]
        raise StudyFileError("\n".join(shown)) from None


def _line(problem: Problem, text: str, lines: toml_lines.LineIndex) -> int | None:
    """In which line it stands; an event's key in the table with the event's number."""
    path = problem.path
    if path[:1] == ("events",) and len(path) > 1:
        found = _event_line(text, int(path[1]), path[2:])
        if found is not None:
            return found
    for size in range(len(path), 0, -1):
        for known in _spellings(path[:size]):
            if known in lines.lines:
                return lines.lines[known]
    return None


def _spellings(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Keys with dots may be quoted, or stand for tables."""
    yield path
    yield (*path[:-1], *path[-1].split("."))


def _event_line(text: str, number: int, key: tuple[str, ...]) -> int | None:
    rows = text.splitlines()
    heads = [row for row, line in enumerate(rows) if _EVENT.match(line)]
    if number >= len(heads):
        return None
    first = heads[number]
    if key:
        pattern = re.compile(rf"""\s*["']?{re.escape(key[0])}["']?\s*=""")
        for row in range(first + 1, len(rows)):
            if rows[row].lstrip().startswith("["):
                break
            if pattern.match(rows[row]):
                return row + 1
    return first + 1
