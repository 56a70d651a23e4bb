"""Tells which connectors and tasks of a worker have changed since a caller last asked.

`headgate up` asks twice a second. It is told nothing of thousands of tasks that do not change.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from headgate.ids import TaskId

Item: TypeAlias = str | TaskId
"""A connector or a task."""
GONE_KEPT: Final = 10_000
"""How many items that are gone are remembered, for callers that ask with an old mark."""


class News:
    """Changed items, in the order of their last change. Nothing is recorded before the first
    question.

    Every change must be reported. A report without a change does no harm.
    """

    def __init__(self, birth: int) -> None:
        """`birth`: number that tells this worker's marks from those of its predecessors."""
        self._birth = birth
        self._number = 0
        """Number of questions so far. A change from now on is recorded with it."""
        self._changed: dict[Item, int] = {}
        self._gone: dict[Item, int] = {}
        self._forgotten = 0
        """Highest number of an item that is gone and not remembered any more."""

    def changed(self, item: Item) -> None:
        """Note that the item is held and may look otherwise from now on."""
        if self._number:
            self._changed.pop(item, None)  # the latest is to be the last
            self._changed[item] = self._number
            self._gone.pop(item, None)

    def came(self, items: Iterable[Item]) -> None:
        """Note that the items are held now and were not before. Calls no function for each."""
        if self._number:
            new = dict.fromkeys(items, self._number)
            self._changed.update(new)
            if self._gone:
                self._gone = {item: at for item, at in self._gone.items() if item not in new}

    def went(self, item: Item) -> None:
        """Note that the item is not held any more."""
        if not self._number:
            return
        self._changed.pop(item, None)
        self._gone.pop(item, None)
        self._gone[item] = self._number
        if len(self._gone) > GONE_KEPT:
            oldest = next(iter(self._gone))
            self._forgotten = self._gone.pop(oldest)

    def asked(self) -> str:
        """Return a new mark, with which a caller asks for what changes from now on."""
        self._number += 1
        return f"{self._birth}.{self._number}"

    def since(self, mark: str) -> "tuple[list[Item], list[Item]] | None":
        """Return the items that have changed and those that have gone after the answer that had
        `mark`. None: that is not known, and the caller must be told everything. Cost: proportional
        to the result."""
        birth, _, text = mark.partition(".")
        if birth != str(self._birth) or not (text.isascii() and text.isdecimal()):
            return None
        number = int(text)
        if not self._forgotten < number <= self._number:
            return None
        return _from(self._changed, number), _from(self._gone, number)


def _from(numbers: dict[Item, int], least: int) -> list[Item]:
    """Return the items whose number is no less than `least`. They are the last ones."""
    found: list[Item] = []
    for item in reversed(numbers):
        if numbers[item] < least:
            break
        found.append(item)
    return found
