"""Numbers, texts and times are converted as Java converts them.
differential/test_transforms_against_java.py compares random ones with Java."""

import math
from decimal import Decimal

import pytest

from headgate.java.numbers import (
    java_float,
    parse_big_decimal,
    parse_floating,
    parse_integer,
    single,
    single_of,
    truncated,
    whole_part,
    wrapped,
)
from headgate.java.simple_date_format import (
    DatePatternError,
    DateTextError,
    RefusedDateError,
    SimpleDateFormat,
)
from headgate.java.text import split


def test_narrow_whole_numbers_wrap_and_doubles_are_cut_off() -> None:
    assert [wrapped(number, 8) for number in (127, 128, -129, 300)] == [127, -128, 127, 44]
    assert [truncated(number, 32) for number in (1.9, -1.9, math.nan, 1e300, -math.inf)] == [
        *(1, -1, 0, 2**31 - 1, -(2**31))
    ]
    assert [whole_part(Decimal(text)) for text in ("-1.9", "0.9", "1E+999999999")] == [-1, 0, 0]


@pytest.mark.parametrize("text", ["", " 1", "1_0", "128", "0x1", "1.0", "--1"])
def test_texts_that_are_no_byte(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_integer(text, 8)


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 1.5 ", 1.5), ("1.5f", 1.5), ("0x1.8p1", 3.0), ("-Infinity", -math.inf), ("1e400", 1e999)],
)
def test_texts_that_are_doubles(text: str, number: float) -> None:
    assert parse_floating(text, to_single=False) == number


def test_a_float_is_rounded_once() -> None:
    half_way = 16777217  # between two floats: the even one is taken
    assert single_of(half_way) == single(float(half_way)) == 16777216.0
    just_above = "16777217.00000000000000000001"  # the nearest double is half-way again
    assert parse_floating(just_above, to_single=True) == 16777218.0
    assert parse_floating("3.4028236e38", to_single=True) == math.inf
    assert [java_float(single(number)) for number in (0.1, 1e7, 1e-4, 16777216.0, 3.0)] == [
        *("0.1", "1.0E7", "1.0E-4", "1.6777216E7", "3.0")
    ]


def test_decimals_and_parts_of_texts() -> None:
    assert parse_big_decimal("-0") == 0
    with pytest.raises(ValueError, match="not a decimal"):
        parse_big_decimal("NaN")
    assert [split(text, ":") for text in ("a:b", "a:", ":b", ":", "")] == [
        *(["a", "b"], ["a"], ["", "b"], [], [""])
    ]


@pytest.mark.parametrize(
    ("pattern", "ms", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", 0, "1970-01-01T00:00:00.000+0000"),
        ("EEEE, d MMM yy h:mm a XXX", 951_782_400_000, "Tuesday, 29 Feb 00 12:00 AM Z"),
        ("yyyy-MM-dd", -12_219_292_800_001, "1582-10-04"),  # a day before 1582-10-15
        ("yyyy DDD", -12_219_292_800_000, "1582 278"),
        ("yyyy-MM-dd", -62_135_769_600_000, "0001-01-01"),  # Julian
        ("yyyy-MM-dd", -62_135_769_600_001, "0001-12-31"),  # a year before, of the other era
        ("'it''s' ''kk", 0, "it's '24"),
    ],
)
def test_times_as_text(pattern: str, ms: int, text: str) -> None:
    assert SimpleDateFormat(pattern).format(ms) == text


@pytest.mark.parametrize(
    ("pattern", "text", "ms"),
    [
        ("yyyy-MM-dd", "1970-01-02 and more", 86_400_000),
        ("yyyy-MM-dd", "1969-13-02", 86_400_000),  # lenient
        ("yyyyMMdd", "19700102", 86_400_000),
        ("yyyy-MM-dd HH:mm:ssZ", "1970-01-01 01:00:00+0100", 0),
        ("h:mm a", "12:30 am", 1_800_000),
        ("MMM d, yyyy", "january 2, 1970", 86_400_000),
        ("yyyy-MM-dd", "1582-10-04", -12_219_379_200_000),
        # Month 991 is in 1626, counted on in the Julian calendar, in which the year 1544 is.
        ("yyyy-MM-dd'T'HH:mm:ssX", "1544-991-11T00:00:00Z", -10_838_188_800_000),
    ],
)
def test_times_from_text(pattern: str, text: str, ms: int) -> None:
    assert SimpleDateFormat(pattern).parse(text) == ms


@pytest.mark.parametrize(
    ("pattern", "text", "ms"),
    [
        ("yyyyMMdd", "2024 1 2", 1_704_153_600_000),
        ("yyyyMMdd", "2024 112", 1_705_017_600_000),
        ("yyyyMMdd", " 0240102", -61_409_923_200_000),
        ("yyyyMMddHHmmss", "1551 020104022", -13_222_531_178_000),
        ("DDDSSS", " 12 34", 950_400_034),
        ("HHmmss", " 1 2 3", 3_723_000),
    ],
)
def test_blanks_before_a_number_are_part_of_its_width(pattern: str, text: str, ms: int) -> None:
    """The numbers are Java's."""
    assert SimpleDateFormat(pattern).parse(text) == ms


@pytest.mark.parametrize("text", ["2024  12", "2024   2"])
def test_blanks_alone_are_no_number(text: str) -> None:
    with pytest.raises(DateTextError):
        SimpleDateFormat("yyyyMMdd").parse(text)


def test_texts_and_patterns_that_are_refused() -> None:
    with pytest.raises(DateTextError):
        SimpleDateFormat("yyyy-MM-dd").parse("2024/01/01")
    with pytest.raises(RefusedDateError, match="6 digits"):
        SimpleDateFormat("ss.SSS").parse("01.123456")
    with pytest.raises(RefusedDateError, match="zone PST"):
        SimpleDateFormat("HH z").parse("01 PST")
    for pattern, message in (("b", "Illegal pattern"), ("'", "Unterminated"), ("XXXX", "ISO 8601")):
        with pytest.raises(DatePatternError, match=message):
            SimpleDateFormat(pattern)
    for pattern in ("YYYY", "SSSSSS", "ww", "G", "LL"):
        with pytest.raises(DatePatternError, match="is not supported"):
            SimpleDateFormat(pattern)
    for pattern in ("yy", "D M", "E", "H a"):
        with pytest.raises(DatePatternError, match="is not supported for reading"):
            SimpleDateFormat(pattern).check_readable()
