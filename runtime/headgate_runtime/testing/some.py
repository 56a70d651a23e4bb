"""The number of points and offsets that the suites try."""

from collections.abc import Sequence
from typing import Any

OPTION = "--connector-points"
DEFAULT = 40


def some(numbers: Sequence[int], request: Any, most: int = DEFAULT) -> list[int]:
    """Return all of `numbers`, or as many as the option says, evenly spread, the first and the last
    included.

    Args:
        request: pytest's request. Without the plugin the option is not set.
        most: how many, unless the option says.
    """
    asked = request.config.getoption(OPTION, default=None)
    most = len(numbers) if asked == "all" else int(asked or most)
    if len(numbers) <= most:
        return list(numbers)
    step = (len(numbers) - 1) / max(1, most - 1)
    return sorted({numbers[round(step * each)] for each in range(most)})
