"""Levels of this process's loggers, under the names and levels of Connect's ``/admin/loggers``.

Source: KIP-495, KIP-976. Java's level WARN is Python's WARNING, FATAL is CRITICAL, TRACE is below
DEBUG. Logger names are Python's (``headgate_runtime``). ``root`` is the logger above all others.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

ROOT: Final = "root"
OFF: Final = 100
TRACE: Final = 5
LEVELS: Final[Mapping[str, int]] = {
    "OFF": OFF,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


class Loggers:
    """Reads and sets logger levels, and remembers when each was changed. Safe for several
    threads."""

    def __init__(self) -> None:
        self._changed_ms: dict[str, int] = {}

    def levels(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the levels of the root and of each logger that has a level of its own."""
        named = {
            name: found
            for name, found in list(logging.root.manager.loggerDict.items())
            if isinstance(found, logging.Logger) and found.level != logging.NOTSET
        }
        return {
            name: self._shown(name, found.level)
            for name, found in sorted({ROOT: logging.getLogger(), **named}.items())
        }

    def level(self, logger: str) -> Mapping[str, Any] | None:
        """Return the effective level of a logger, or None if no code has used the logger."""
        if logger != ROOT and logger not in logging.root.manager.loggerDict:
            return None
        return self._shown(logger, _logger(logger).getEffectiveLevel())

    def is_level(self, level: str) -> bool:
        return level.upper() in LEVELS

    def set_level(self, logger: str, level: str) -> Sequence[str]:
        """Set the level of a logger and of all loggers below it. Return their names, sorted. For an
        unknown level the list is empty."""
        number = LEVELS.get(level.upper())
        if number is None:
            return []
        known = list(logging.root.manager.loggerDict)
        below = known if logger == ROOT else [one for one in known if one.startswith(f"{logger}.")]
        now_ms = time.time_ns() // 1_000_000
        affected = sorted({logger, *below})
        for name in affected:
            if _logger(name).level != number:
                _logger(name).setLevel(number)
                self._changed_ms[name] = now_ms
        logging.getLogger(__name__).info("level of %s is %s now", logger, level.upper())
        return affected

    def _shown(self, name: str, number: int) -> Mapping[str, Any]:
        # A level in between is shown as the next one that lets at least as much through.
        level = next((word for word, value in LEVELS.items() if value <= number), "TRACE")
        return {"level": level, "last_modified": self._changed_ms.get(name)}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)
