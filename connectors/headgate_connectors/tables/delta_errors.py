"""Error texts of delta-rs in the form that users see."""

import re
from typing import Final

_ARROW: Final = re.compile(r"\n|(?:\x1b\[\d*m|↳)+")


def in_a_line(error: Exception) -> str:
    """Return an error's text on one line, without the arrows and colours between its parts."""
    return ": ".join(part.strip() for part in _ARROW.split(str(error)) if part.strip())
