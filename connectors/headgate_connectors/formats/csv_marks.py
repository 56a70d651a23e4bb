"""What Python's `csv` does not tell of a row, or tells in another way than we read it."""

import re
from collections.abc import Callable

from headgate_connectors.files.reader import ReadOptions


def kept_escapes(options: ReadOptions) -> Callable[[str], str] | None:
    """What makes of a line one in which `csv` reads each escape as we do; None: there are none.

    `csv` drops each escape, so that ``C:\\new`` would be ``C:new``. Here one that stands before an
    ordinary character is text, and one before CRLF is of both its characters.
    """
    escape = options.escape
    if escape is None:
        return None
    marks = {options.delimiter, options.quote, options.comment, escape, "\n", "\r", ""}
    pair = re.compile(rf"{re.escape(escape)}(\r\n|.|\Z)", re.DOTALL)

    def changed(found: re.Match[str]) -> str:
        if found[1] == "\r\n":
            return f"{escape}\r{escape}\n"
        return found[0] if found[1] in marks else f"{escape}{found[0]}"

    return lambda line: pair.sub(changed, line) if escape in line else line


class QuotedNulls:
    """Finds fields with the text of a null that are in quotes, and so no null."""

    def __init__(self, null: str, quote: str, options: ReadOptions) -> None:
        self._quote, self._delimiter = quote, options.delimiter
        doubled = [null.replace(quote, quote + quote)]
        if options.escape is not None:
            doubled.append(doubled[0].replace(options.escape, options.escape * 2))
        self._written = tuple(f"{quote}{text}{quote}" for text in doubled)
        mark, end = re.escape(quote), re.escape(options.delimiter)
        escape = "" if options.escape is None else re.escape(options.escape)
        escaped = f"|{escape}." if escape else ""
        inside = rf"(?:[^{mark}{escape}]|{mark}{mark}{escaped})*+"
        outside = rf"(?:[^{end}{escape}]{escaped})*+"
        self._field = re.compile(rf"{mark}{inside}{mark}|{outside}", re.DOTALL)

    @staticmethod
    def of(options: ReadOptions) -> "QuotedNulls | None":
        """None: no field is null, or none is in quotes. Where types are yet to be inferred, a null
        may be in quotes: it says nothing of its column's type."""
        if options.null is None or options.quote is None or options.infers:
            return None
        return QuotedNulls(options.null, options.quote, options)

    def are_in(self, row: str) -> bool:
        """Whether it may have such fields. Quick."""
        return any(text in row for text in self._written)

    def of_row(self, row: str) -> list[bool]:
        """Whether each field of a row that `csv` has parsed is such a field."""
        found, at = list[bool](), 0
        while (field := self._field.match(row, at)) is not None:
            found.append(field[0] in self._written)
            at = field.end()
            if not row.startswith(self._delimiter, at):
                break
            at += 1
        return found
