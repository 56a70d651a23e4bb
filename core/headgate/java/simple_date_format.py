"""Times as Java's `SimpleDateFormat` writes and reads them in UTC, with English names.

The letters y, M, d, D, H, k, K, h, m, s, S, a, E, u, z, Z and X are known, and text between them.
Dates before 15 October 1582 are Julian, as in Java. Source: java.text.SimpleDateFormat and
java.util.GregorianCalendar (Java 17), in their lenient mode.

Differs: patterns are refused if their result in Java depends on the locale or the clock, or is
another time than the text shows. These are eras (G), weeks (Y, w, W, F), L, and more than three
letters S. For reading, these are refused too: a year of two digits, a fraction of a second with
more than three digits, and zones by name except UTC and GMT.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

from headgate.errors import CoreError

DAY_MS: Final = 86_400_000
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_EPOCH: Final = date(1970, 1, 1).toordinal()
_CUTOVER_YEAR: Final = 1582
_CUTOVER: Final = date(_CUTOVER_YEAR, 10, 15).toordinal() - _EPOCH
"""First day of the Gregorian calendar, in days since 1970."""
_LETTERS: Final = "GyMdkHmsSEDFwWahKzZYuXL"
_NUMERIC: Final = "yMdkHmsSDhKu"
_REFUSED: Final = {
    "G": "eras are not read or written",
    "Y": "a year of weeks depends on the worker's locale; y is the year",
    "w": "weeks depend on the worker's locale",
    "W": "weeks depend on the worker's locale",
    "F": "weeks of a month are not read or written",
    "L": "use M for the month",
}


class DatePatternError(CoreError):
    """A pattern is not valid in Java, or is not understood here; the text says which part and
    why."""


class DateTextError(CoreError):
    """A text does not match the pattern. Source: `ParseException`."""


class RefusedDateError(CoreError):
    """Java reads a text as another time than it shows, or by its locale; the message says which
    part."""


@dataclass(frozen=True, slots=True)
class _Part:
    letter: str
    """Letter of the pattern; "" for text."""
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class _Civil:
    """A time in its fields. `year` is the year of its era; `month` and `day` count from 1."""

    year: int
    month: int
    day: int
    ms: int
    """Milliseconds since midnight."""
    days: int
    """Days since 1970-01-01."""


class SimpleDateFormat:
    """A parsed pattern. It may be used by any thread."""

    def __init__(self, pattern: str) -> None:
        """Parse a pattern.

        Raises:
            DatePatternError: The pattern is not valid or not understood.
        """
        self.pattern = pattern
        self._parts = _parsed(pattern)
        self._writers = tuple(map(_writer, self._parts))
        self._unreadable = _why_unreadable(self._parts)

    def check_readable(self) -> None:
        """Check that the pattern can read texts. Raises DatePatternError if it can only write
        them."""
        if self._unreadable:
            raise DatePatternError(self._unreadable)

    def format(self, ms: int) -> str:
        """Return the text of a time in milliseconds since 1970."""
        time = civil(ms)
        return "".join([write(time) for write in self._writers])

    def parse(self, text: str) -> int:
        """Return the time at the beginning of `text`, in milliseconds since 1970. The rest of the
        text is ignored.

        Raises:
            DateTextError: The text does not match.
            RefusedDateError: Java would read another time than the text shows.
        """
        if self._unreadable:
            raise RefusedDateError(self._unreadable)
        return _Reading(text).read(self._parts)


@lru_cache(256)
def date_format(pattern: str) -> SimpleDateFormat:
    """Return the format for a pattern, which is cached. Raises DatePatternError."""
    return SimpleDateFormat(pattern)


# -- the calendar --


def civil(ms: int) -> _Civil:
    days, of_day = divmod(ms, DAY_MS)
    year, month, day = _gregorian(days) if days >= _CUTOVER else _julian(days)
    return _Civil(year if year > 0 else 1 - year, month, day, of_day, days)


def _gregorian(days: int) -> tuple[int, int, int]:
    eras, of_era = divmod(days + 719_468, 146_097)  # since 1 March of year 0
    of_400 = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * of_400 + of_400 // 4 - of_400 // 100)
    return _from_march(400 * eras + of_400, of_year)


def _julian(days: int) -> tuple[int, int, int]:
    since = days + 719_470  # 1 March of the Julian year 0
    cycles, of_cycle = divmod(since, 1461)
    of_four = min(of_cycle // 365, 3)
    return _from_march(4 * cycles + of_four, of_cycle - 365 * of_four)


def _from_march(year: int, of_year: int) -> tuple[int, int, int]:
    """Return year, month and day, from a year that begins in March and a day of it, counted from
    0."""
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    return year + (month >= 10), month + 3 if month < 10 else month - 9, day


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a date whose month and day may be out of range.

    A year before 1582 is continued as a Julian year, even if its months lead beyond the change of
    calendar.
    """
    years, month = divmod(month - 1, 12)
    found = _days_of(year + years, month + 1, gregorian=True) + day - 1
    if year >= _CUTOVER_YEAR and found >= _CUTOVER:
        return found
    return _days_of(year + years, month + 1, gregorian=False) + day - 1


def _days_of(year: int, month: int, *, gregorian: bool) -> int:
    """Return the days since 1970 of the first of a month."""
    if month <= 2:
        year, month = year - 1, month + 12
    of_year = (153 * (month - 3) + 2) // 5
    leap = year // 4 - year // 100 + year // 400 if gregorian else year // 4
    return 365 * year + leap + of_year - (719_468 if gregorian else 719_470)


# -- patterns --


def _parsed(pattern: str) -> Sequence[_Part]:
    parts: list[_Part] = []
    for found in re.finditer(r"''|'((?:[^']|'')*)('?)|([A-Za-z])\3*|[^A-Za-z']+", pattern):
        whole, quoted, end, letter = found.group(0), found.group(1), found.group(2), found.group(3)
        if whole == "''":
            parts.append(_Part("", 0, "'"))
        elif quoted is not None:
            if not end:
                raise DatePatternError("Unterminated quote")
            parts.append(_Part("", 0, quoted.replace("''", "'")))
        elif letter is not None:
            _check_letter(letter, len(whole))
            parts.append(_Part(letter, len(whole), ""))
        else:
            parts.append(_Part("", 0, whole))
    return parts


def _check_letter(letter: str, count: int) -> None:
    if letter not in _LETTERS:
        raise DatePatternError(f"Illegal pattern character '{letter}'")
    if letter == "X" and count > 3:
        raise DatePatternError(f"invalid ISO 8601 format: length={count}")
    if letter in _REFUSED:
        raise DatePatternError(f"{letter * count} is not supported: {_REFUSED[letter]}")
    if letter == "S" and count > 3:
        raise DatePatternError(
            f"{letter * count} is not supported: S counts milliseconds, so Java writes 5 ms as "
            f"{'5'.zfill(count)} and reads {'5'.ljust(count, '0')} as {'5'.ljust(count, '0')} ms; "
            "use SSS"
        )


def _why_unreadable(parts: Sequence[_Part]) -> str | None:
    """Return why a pattern that can write texts cannot read them; None if it can."""
    letters = {part.letter for part in parts}
    if any(part.letter == "y" and part.count == 2 for part in parts):
        return "yy is not supported for reading: which century it is depends on the clock; use yyyy"
    if "D" in letters and letters & set("Md"):
        return "D beside M or d is not supported for reading"
    if letters & set("Eu") and "d" not in letters:
        return "a day of the week without d is not supported for reading"
    if letters & set("Hk") and letters & set("hKa"):
        return "H or k beside h, K or a is not supported for reading"
    return None


_Writer = Callable[[_Civil], str]


def _writer(part: _Part) -> _Writer:
    letter, count = part.letter, part.count
    if not letter:
        return lambda time: part.text
    if letter == "y" and count == 2:
        return lambda time: f"{time.year % 100:02}"
    if letter == "M" and count >= 3:
        return lambda time: _MONTHS[time.month - 1][: None if count > 3 else 3]
    if letter == "E":
        return lambda time: _DAYS[(time.days + 4) % 7][: None if count > 3 else 3]
    if letter == "a":
        return lambda time: "AM" if time.ms < DAY_MS // 2 else "PM"
    if letter in "zZX":
        names = {"z": "UTC" if count < 4 else "Coordinated Universal Time", "Z": "+0000", "X": "Z"}
        return lambda time: names[letter]
    number = _NUMBERS[letter]
    return lambda time: f"{number(time):0{count}}"


def _hour(time: _Civil) -> int:
    return time.ms // 3_600_000


def _day_of_year(time: _Civil) -> int:
    # In the year of the change too, days count from 1 January, a Julian date.
    year, _, _ = _gregorian(time.days) if time.days >= _CUTOVER else _julian(time.days)
    return time.days - _days(year, 1, 1) + 1


_NUMBERS: Final[dict[str, Callable[[_Civil], int]]] = {
    "y": lambda time: time.year,
    "M": lambda time: time.month,
    "d": lambda time: time.day,
    "D": _day_of_year,
    "H": _hour,
    "k": lambda time: _hour(time) or 24,
    "K": lambda time: _hour(time) % 12,
    "h": lambda time: _hour(time) % 12 or 12,
    "m": lambda time: time.ms // 60_000 % 60,
    "s": lambda time: time.ms // 1000 % 60,
    "S": lambda time: time.ms % 1000,
    "u": lambda time: (time.days + 3) % 7 + 1,
}


# -- reading --

_NUMBER: Final = re.compile(r"-?\d+")
_ZONE_RFC: Final = re.compile(r"([+-])(\d\d)(\d\d)", re.ASCII)
_ZONE_GMT: Final = re.compile(r"GMT(?:([+-])(\d\d?):(\d\d)|(?![+-]))", re.ASCII | re.IGNORECASE)
_ZONE_NAME: Final = re.compile(r"Coordinated Universal Time|UTC", re.IGNORECASE)
_ZONE_ISO: Final = {
    1: re.compile(r"Z|([+-])(\d\d)()", re.ASCII),
    2: re.compile(r"Z|([+-])(\d\d)(\d\d)", re.ASCII),
    3: re.compile(r"Z|([+-])(\d\d):(\d\d)", re.ASCII),
}
_INT_MASK: Final = 0xFFFFFFFF


class _Reading:
    """The reading of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[str, int] = {}
        self._zone_ms = 0

    def read(self, parts: Sequence[_Part]) -> int:
        for part, after in zip(parts, (*parts[1:], None), strict=True):
            if not part.letter:
                if not self._text.startswith(part.text, self._at):
                    raise DateTextError("text does not match")
                self._at += len(part.text)
                continue
            start = self._at
            while self._text[self._at : self._at + 1] in (" ", "\t"):
                self._at += 1
            self._field(part, after, start)
        return self._ms()

    def _field(self, part: _Part, after: _Part | None, start: int) -> None:
        """Read one field.

        Args:
            start: Position where the blanks before the field begin; they count in its width.
        """
        letter, count = part.letter, part.count
        if letter == "M" and count >= 3:
            self._found["M"] = self._name(_MONTHS) + 1
        elif letter == "E":
            self._name(_DAYS)  # the day of the month decides
        elif letter == "a":
            self._found["a"] = self._name(("AM", "PM"))
        elif letter == "X":
            self._zone((_ZONE_ISO[count],))
        elif letter in "zZ":
            self._zone((_ZONE_RFC, _ZONE_GMT, _ZONE_NAME))
        else:
            counted = after is not None and _is_counted(after)
            self._found[letter] = self._number(part, start + count if counted else None)

    def _number(self, part: _Part, limit: int | None) -> int:
        end = len(self._text) if limit is None else limit
        if end > len(self._text):
            raise DateTextError("a number is too short")
        found = _NUMBER.match(self._text, self._at, end)
        if found is None:
            raise DateTextError("no number")
        digits = found.group().lstrip("-")
        if part.letter == "S" and len(digits) > 3:
            raise RefusedDateError(
                f"a second fraction of {len(digits)} digits, {digits}, is not supported: Java "
                "takes it for as many milliseconds"
            )
        if part.letter == "y" and part.count == 1 and len(found.group()) == 2 == len(digits):
            raise RefusedDateError(
                "a year of two digits is not supported: its century depends on the clock; use yyyy"
            )
        self._at = found.end()
        number = max(-(1 << 63), min((1 << 63) - 1, int(found.group())))
        return (number + (1 << 31) & _INT_MASK) - (1 << 31)

    def _name(self, names: Sequence[str]) -> int:
        rest = self._text[self._at :].lower()
        for index, name in enumerate(names):
            for spelling in (name.lower(), name[:3].lower()):
                if rest.startswith(spelling):
                    self._at += len(spelling)
                    return index
        raise DateTextError("no such name")

    def _zone(self, forms: Sequence[re.Pattern[str]]) -> None:
        for form in forms:
            found = form.match(self._text, self._at)
            if found is None:
                continue
            self._at = found.end()
            sign, hours, minutes = found.groups() if found.lastindex else (None, "0", "0")
            hour, minute = int(hours), int(minutes or "0")
            if hour > 23 or minute > 59:
                break
            self._zone_ms = (hour * 60 + minute) * 60_000 * (-1 if sign == "-" else 1)
            return
        else:
            named = re.match(r"[A-Za-z]{3,}", self._text[self._at :])
            if named and forms[0] is _ZONE_RFC:
                raise RefusedDateError(
                    f"the zone {named.group()} is not supported: UTC, GMT and offsets are"
                )
        raise DateTextError("no zone")

    def _ms(self) -> int:
        found = self._found
        if "D" in found:
            days = _days(found.get("y", 1970), 1, 1) + found["D"] - 1
        else:
            days = _days(found.get("y", 1970), found.get("M", 1), found.get("d", 1))
        of_day = found.get("m", 0) * 60_000 + found.get("s", 0) * 1000 + found.get("S", 0)
        return days * DAY_MS + self._hours() * 3_600_000 + of_day - self._zone_ms

    def _hours(self) -> int:
        found = self._found
        if "H" in found or "k" in found:
            hour = found.get("H", found.get("k", 0))
            return 0 if hour == 24 and "k" in found else hour
        hour = found.get("K", found.get("h", 0))
        return (0 if hour == 12 and "h" in found else hour) + 12 * found.get("a", 0)


def _is_counted(after: _Part) -> bool:
    """Return whether a number before `after` has exactly as many digits as the pattern has
    letters."""
    return (
        after.letter in _NUMERIC
        and after.letter != ""
        and not (after.letter == "M" and after.count > 2)
    )
