"""What delta-rs says of a failure, as users are told it."""

import re
from typing import Final

_ARROW: Final = re.compile(r"\n|(?:\x1b\[\d*m|↳)+")


def in_a_line(error: Exception) -> str:
    """The text without the arrows and colours between its parts."""
    return ": ".join(part.strip() for part in _ARROW.split(str(error)) if part.strip())
