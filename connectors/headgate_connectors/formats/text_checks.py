"""Checks of texts that several connectors share."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def is_utf8(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8, which halves of surrogate pairs cannot. Python
    reads bytes of a file name that are not UTF-8 as such halves."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone with a name. Raises ValueError if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name} is no time zone, expected a name such as UTC or Europe/Berlin"
        ) from None
