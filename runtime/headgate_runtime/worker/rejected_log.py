"""Reports records of an internal topic that cannot be used to the log."""

import logging
from typing import Final, Protocol

log = logging.getLogger(__name__)

NAMED: Final = 50
"""How many records of a topic are named one by one. After these, a line gives their number each
time it has doubled. So a topic full of them takes some seventy lines."""
_KEY_SHOWN: Final = 100


class Rejected(Protocol):
    """A record that no reader can use."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def reason(self) -> str: ...


class RejectedLog:
    """Log of one topic's rejected records; each is reported once. For one thread at a time."""

    def __init__(self, what: str, topic: str) -> None:
        """
        Args:
            what: ``config``, ``status`` or ``offsets``.
            topic: name of the topic, empty if it has none.
        """
        self._topic = f"{what} topic {topic}".rstrip()
        self._count = 0
        self._next = 2 * NAMED

    def report(self, record: Rejected) -> None:
        self._count += 1
        if self._count <= NAMED:
            log.warning("%s, %s; passed over", self._topic, words(record))
            return
        if self._count == NAMED + 1:
            log.warning(
                "%s has more records that cannot be used: from here on they are counted. "
                "`headgate observe` shows the last hundred",
                self._topic,
            )
        if self._count == self._next:
            self._next *= 2
            log.warning(
                "%s: %d records cannot be used so far; the last: %s",
                self._topic,
                self._count,
                words(record),
            )


def words(record: Rejected) -> str:
    """Return where the record is and what is wrong with it."""
    place = f"partition {record.partition}, offset {record.offset}"
    return f"{place}, key {shown_key(record.key)!r}: {record.reason}"


def shown_key(key: str) -> str:
    """Return the key, shortened: its writer may have put any amount of text in it."""
    return key if len(key) <= _KEY_SHOWN else f"{key[:_KEY_SHOWN]}... ({len(key)} characters)"
