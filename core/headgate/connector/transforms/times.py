"""Conversion of Python's dates and times to milliseconds since 1970, as in Java's `Date`, and
back."""

import datetime
from typing import Final

from headgate.connector.api import DataError
from headgate.java.simple_date_format import DAY_MS

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_MS: Final = datetime.timedelta(milliseconds=1)


def ms_of(value: datetime.date | datetime.time) -> int:
    """Return milliseconds since 1970: of a datetime, of a date's midnight, or of a time on 1
    January 1970.

    Raises:
        DataError: A datetime has no timezone, so its moment is not known.
    """
    if isinstance(value, datetime.datetime):
        if value.utcoffset() is None:
            raise DataError(f"{value} is without timezone, expected an aware datetime")
        return (value - _EPOCH) // _MS
    if isinstance(value, datetime.date):
        return (value.toordinal() - _EPOCH_DAY) * DAY_MS
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1000 + value.microsecond // 1000


def datetime_of(ms: int) -> datetime.datetime:
    """Return the moment in UTC. Raises DataError unless its year is in 1 to 9999, as Python's."""
    try:
        return _EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        raise _beyond(ms) from None


def date_of(ms: int) -> datetime.date:
    """Return the date in UTC. Raises DataError unless its year is in 1 to 9999, as Python's."""
    try:
        return datetime.date.fromordinal(_EPOCH_DAY + ms // DAY_MS)
    except (ValueError, OverflowError):
        raise _beyond(ms) from None


def time_of(ms: int) -> datetime.time:
    """Return the time of day."""
    seconds, milliseconds = divmod(ms % DAY_MS, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return datetime.time(hour, minute, second, milliseconds * 1000)


def _beyond(ms: int) -> DataError:
    return DataError(f"{ms} ms since 1970 is in no year from 1 to 9999, expected one of these")
