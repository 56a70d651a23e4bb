"""Java's regular expressions, with the meaning of `Pattern.matcher(name).matches()`: an expression
must match the whole name.

Python reads many of them differently: ``[a-z&&[^x]]`` is another set there, ``\\Q.\\E`` and
``\\p{Alpha}`` are refused, and ``(?i)`` may stand only at the beginning. So this module parses an
expression and writes it in the syntax that both have in common. It refuses anything that it does
not know, so that no expression means one thing to Java and another here. All characters beyond
ASCII, which no topic's name has, are treated alike.

Source: java.util.regex.Pattern (Java 17). Refused although Java accepts them: back references,
``\\G``, ``\\R``, ``\\X``, ``\\N``, ``\\c``, octal numbers, properties other than POSIX's, the flags
x, u and U, a bound after a bound (``a{2}{3}``), look-behind of more than one length, and classes
and characters side by side after ``&&``.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from headgate.errors import CoreError

_Set: TypeAlias = int
"""Set of characters: a bit for each ASCII character, and one bit for all others."""

_OTHERS: Final = 128
_ALL: Final[_Set] = (1 << 129) - 1
_BOUND_MAX: Final = 2**31 - 1
_BOUND_DIGITS_MAX: Final = 10
PATTERN_MAX: Final = 65_536
"""Longest expression that is read, in characters; each costs some 30 microseconds. Java has no
limit."""
_KEPT_MAX: Final = 1_000
"""Longest expression that is cached in compiled form; hundreds of long ones would take
gigabytes."""


class JavaPatternError(CoreError):
    """An expression is not valid in Java, or is not understood here; the text says what and
    where."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile a Java expression. `match` of the result matches what Java's `matches` does: the
    whole text or nothing. The result has no groups.

    Raises:
        JavaPatternError: As above, or the expression is longer than `PATTERN_MAX`.
    """
    if len(pattern) > PATTERN_MAX:
        raise JavaPatternError(
            f"it has {len(pattern)} characters; expected at most {PATTERN_MAX} of them"
        )
    if len(pattern) <= _KEPT_MAX:
        return _kept(pattern)
    try:
        return _compiled(pattern)
    finally:
        re.purge()  # `re` caches compiled expressions too


@lru_cache(256)
def _kept(pattern: str) -> re.Pattern[str]:
    return _compiled(pattern)


def _compiled(pattern: str) -> re.Pattern[str]:
    reader = _Reader(pattern)
    try:
        return re.compile(f"(?:{reader.read()})\\Z", re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaPatternError(f"not understood here: {error}") from error


# -- sets of characters --


def _of(chars: str) -> _Set:
    return sum(1 << ord(char) for char in set(chars))


def _between(low: str, high: str) -> _Set:
    return sum(1 << code for code in range(ord(low), ord(high) + 1))


_LOWER, _UPPER, _DIGIT = _between("a", "z"), _between("A", "Z"), _between("0", "9")
_ALPHA: Final = _LOWER | _UPPER
_PUNCT: Final = _between("!", "~") & ~(_ALPHA | _DIGIT)
_SPACE: Final = _of(" \t\n\x0b\f\r")
_POSIX: Final[dict[str, _Set]] = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": _between("\0", "\x7f"),
    "Alpha": _ALPHA,
    "Digit": _DIGIT,
    "Alnum": _ALPHA | _DIGIT,
    "Punct": _PUNCT,
    "Graph": _between("!", "~"),
    "Print": _between(" ", "~"),
    "Blank": _of(" \t"),
    "Cntrl": _between("\0", "\x1f") | _of("\x7f"),
    "XDigit": _DIGIT | _between("a", "f") | _between("A", "F"),
    "Space": _SPACE,
}
_OF_ONE_CASE: Final = frozenset({"Lower", "Upper"})
"""POSIX classes that, with the flag i, mean one thing in Java 17 and another in older versions."""
_SETS: Final[dict[str, _Set]] = {
    "d": _DIGIT,
    "w": _ALPHA | _DIGIT | _of("_"),
    "s": _SPACE,
    "h": _of(" \t"),
    "v": _of("\n\x0b\f\r"),
}
_ANY: Final = _ALL ^ _of("\n\r")
_CHARS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_PLACES: Final = {"A": r"\A", "z": r"\Z", "Z": "$", "b": r"\b", "B": r"\B"}


def _both_cases(found: _Set) -> _Set:
    shift = ord("a") - ord("A")
    return found | (found & _LOWER) >> shift | (found & _UPPER) << shift


def _written(found: _Set) -> str:
    codes = [code for code in range(_OTHERS) if found >> code & 1]
    parts = [f"\\x{code:02x}" for code in codes]
    if found >> _OTHERS & 1:
        parts.append("\\x80-\\U0010ffff")
    return f"[{''.join(parts)}]" if parts else "(?!)"


# -- reading --

_Char: TypeAlias = tuple[str, bool, int]
"""A character, whether it is quoted (between ``\\Q`` and ``\\E``), and its position."""


def _unquoted(pattern: str) -> Sequence[_Char]:
    found: list[_Char] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at + 2)
            end = len(pattern) if end < 0 else end
            found += [(pattern[n], True, n) for n in range(at + 2, end)]
            at = end + 2
        else:
            after = at + (2 if pattern[at] == "\\" else 1)
            found += [(char, False, n) for n, char in enumerate(pattern[at:after], at)]
            at = after
    return found


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._chars = _unquoted(pattern)
        self._length = len(pattern)
        self._at = 0
        self._any_case = False
        """Whether the flag i is set."""
        self._names: set[str] = set()

    def read(self) -> str:
        found = self._alternatives()
        if self._at < len(self._chars):
            raise self._error("Unmatched closing ')'")
        return found

    # -- one character on --

    def _next(self, ahead: int = 0) -> str:
        """Return a character that may have a special meaning; empty for a quoted one and at the
        end."""
        if self._at + ahead >= len(self._chars):
            return ""
        char, quoted, _ = self._chars[self._at + ahead]
        return "" if quoted else char

    def _take(self, text: str) -> bool:
        if any(self._next(n) != char for n, char in enumerate(text)):
            return False
        self._at += len(text)
        return True

    def _take_any(self, expected: str) -> str:
        """Return the next character, whatever it is."""
        if self._at >= len(self._chars):
            raise self._error(f"it ends, expected {expected}")
        self._at += 1
        return self._chars[self._at - 1][0]

    def _take_to(self, end: str, expected: str) -> str:
        found = ""
        while not self._take(end):
            found += self._take_any(expected)
        return found

    def _error(self, what: str) -> JavaPatternError:
        over = self._at >= len(self._chars)
        return JavaPatternError(
            f"{what} near index {self._length if over else self._chars[self._at][2]}"
        )

    # -- structure --

    def _alternatives(self) -> str:
        """Read up to the end of the group. Flags that are set inside hold up to there."""
        any_case = self._any_case
        found = ""
        while self._at < len(self._chars) and self._next() != ")":
            if self._take("|"):
                found += "|"
            elif atom := self._atom():
                found += atom + self._bound()
        self._any_case = any_case
        return found

    def _atom(self) -> str:
        """Read an item that can be repeated; empty for a group that only sets flags."""
        char = self._next()
        if char and char in "*+?{":
            raise self._error(f"Dangling meta character '{char}'")
        if char and char in "^$":
            self._at += 1
            return char
        if self._take("."):
            return _written(_ANY)
        if self._take("("):
            return self._group()
        if self._take("["):
            return _written(self._class())
        if char == "\\" and (place := _PLACES.get(self._next(1))):
            self._at += 2
            if self._next() == "{":
                raise self._error("a boundary with a name is not understood here")
            return place
        return _written(self._character()[0])

    def _bound(self) -> str:
        if self._next() == "{":
            found = self._count()
        elif self._next() in ("*", "+", "?"):
            found = self._take_any("a bound")
        else:
            return ""
        if self._next() in ("?", "+"):
            found += self._take_any("a bound")
        return found

    def _count(self) -> str:
        begin = self._at
        self._at += 1
        low, comma, high = self._take_to("}", "}").partition(",")
        digits = low + high
        if not low or not (digits.isascii() and digits.isdecimal()):
            self._at = begin
            raise self._error("Illegal repetition")
        long = max(len(low.lstrip("0")), len(high.lstrip("0"))) > _BOUND_DIGITS_MAX
        if long or int(low) > _BOUND_MAX or (high and not int(low) <= int(high) <= _BOUND_MAX):
            self._at = begin
            raise self._error("Illegal repetition range")
        return f"{{{low}{comma}{high}}}"

    def _group(self) -> str:
        any_case = self._any_case
        kind = "(?:"
        if self._take("?"):
            kind = self._kind()
        if not kind:
            return ""
        found = kind + self._alternatives()
        self._any_case = any_case
        if not self._take(")"):
            raise self._error("Unclosed group")
        return found + ")"

    def _kind(self) -> str:
        """Return how the group begins in Python; empty for one that only sets flags."""
        for mark in (":", "=", "!", ">", "<=", "<!"):
            if self._take(mark):
                return f"(?{mark}"
        if self._take("<"):
            name = self._take_to(">", "the end of a group's name")
            if not re.fullmatch("[a-zA-Z][a-zA-Z0-9]*", name) or name in self._names:
                raise self._error(f"group name {name!r} is no name, or given twice")
            self._names.add(name)
            return "(?:"
        return self._flags()

    def _flags(self) -> str:
        on = True
        while self._next() not in (")", ":"):
            flag = self._take_any("flags, and ) or :")
            if flag == "-" and on:
                on = False
            elif flag == "i":
                self._any_case = on
            # These flags are about lines, and a name is a single line.
            elif flag not in ("m", "s", "d"):
                self._at -= 1
                raise self._error(f"inline modifier '{flag}' is not understood here")
        return "(?:" if self._take_any(") or :") == ":" else ""

    # -- characters --

    def _character(self) -> tuple[_Set, str]:
        """Return the set that a character or an escape stands for, and the character if it is
        one."""
        if self._take("\\"):
            return self._escape()
        return self._literal(self._take_any("a character"))

    def _literal(self, char: str) -> tuple[_Set, str]:
        if not char.isascii():
            self._at -= 1
            raise self._error(f"{char!r}, which no name of a topic has,")
        return (_both_cases(_of(char)) if self._any_case else _of(char)), char

    def _escape(self) -> tuple[_Set, str]:
        char = self._take_any("what is escaped")
        if char in _CHARS:
            return self._literal(_CHARS[char])
        if char in _SETS:
            return _SETS[char], ""
        if char.lower() in _SETS:
            return _ALL ^ _SETS[char.lower()], ""
        if char in ("p", "P"):
            return self._property() ^ (_ALL if char == "P" else 0), ""
        if char in ("x", "u"):
            return self._literal(self._code(char))
        if char.isascii() and char.isalnum():
            self._at -= 1
            raise self._error(f"\\{char} is not understood here")
        return self._literal(char)

    def _code(self, kind: str) -> str:
        if kind == "x" and self._take("{"):
            digits = self._take_to("}", "}")
        else:
            digits = "".join(self._take_any("a digit") for _ in range(2 if kind == "x" else 4))
        if not re.fullmatch("0*[0-9a-fA-F]{1,6}", digits) or int(digits, 16) > 0x10FFFF:
            raise self._error(f"{digits!r} is no hexadecimal number of a character")
        return chr(int(digits, 16))

    def _property(self) -> _Set:
        name = self._take_to("}", "}") if self._take("{") else self._take_any("a property")
        if name not in _POSIX:
            raise self._error(f"\\p{{{name}}} is not understood here, only POSIX's properties,")
        if self._any_case and name in _OF_ONE_CASE:
            raise self._error(f"\\p{{{name}}} in any case is not understood here")
        return _POSIX[name]

    def _class(self) -> _Set:
        """Read a class, from after its ``[`` up to its ``]``."""
        negated = self._take("^")
        found = self._operand(first=True)
        while self._take("&&"):
            found &= self._operand(first=False)
        self._at += 1
        return _ALL ^ found if negated else found

    def _operand(self, first: bool) -> _Set:
        """Read an operand before, between or after ``&&``."""
        found = items = nested = 0
        odd = not first and self._next() == "&"
        while self._at < len(self._chars):
            # A ] at the beginning is one of the characters.
            if self._next() == "]" and (items or not first):
                break
            if self._next() == self._next(1) == "&":
                break
            if self._take("["):
                found |= self._class()
                nested += 1
            else:
                found |= self._range()
            items += 1
        if self._at >= len(self._chars):
            raise self._error("Unclosed character class")
        # Java parses these in ways that nobody would expect, or not at all.
        if not items or odd or (not first and nested not in (0, items)):
            raise self._error("this intersection of classes is not understood here")
        return found

    def _range(self) -> _Set:
        found, low = self._character()
        if not low or self._next() != "-" or self._next(1) in ("]", "["):
            return found
        self._at += 1
        _, high = self._character()
        if not high or high < low:
            raise self._error("Illegal character range")
        found = _between(low, high)
        return _both_cases(found) if self._any_case else found
