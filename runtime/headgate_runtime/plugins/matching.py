"""Search in the options of plugins."""

import re


def matches(pattern: re.Pattern[str], name: str, documentation: str | None) -> bool:
    """Return whether the name or the meaning of an option matches."""
    return pattern.search(f"{name}\n{documentation or ''}") is not None
