"""Options of plugins that are searched for."""

import re


def matches(pattern: re.Pattern[str], name: str, documentation: str | None) -> bool:
    """Whether the name or the meaning of an option matches."""
    return pattern.search(f"{name}\n{documentation or ''}") is not None
