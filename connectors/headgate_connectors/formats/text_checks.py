"""Checks of texts that several connectors share."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def is_utf8(text: str) -> bool:
    """Whether a text has a form in UTF-8: halves of surrogate pairs have none. Python reads other
    bytes in the name of a file as such."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def zone_of(name: str) -> ZoneInfo:
    """Raises ValueError: there is no such time zone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name} is no time zone, expected a name such as UTC or Europe/Berlin"
        ) from None
