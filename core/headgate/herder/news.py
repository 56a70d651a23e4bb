"""Which work of a worker is not as it was when somebody asked last.

`headgate up` asks twice a second. Of thousands of tasks that do nothing, it is told nothing.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from headgate.ids import TaskId

Item: TypeAlias = str | TaskId
"""A connector or a task."""
GONE_KEPT: Final = 10_000
"""How many items that are gone are remembered for those who ask with an old mark."""


class News:
    """Items in the order of their last change. Nothing is kept before somebody asks.

    What is said to have changed need not have; what has changed must be said.
    """

    def __init__(self, birth: int) -> None:
        """`birth`: tells this worker's marks from those of its predecessors."""
        self._birth = birth
        self._number = 0
        """Number of the questions so far: what changes from now on has this number."""
        self._changed: dict[Item, int] = {}
        self._gone: dict[Item, int] = {}
        self._forgotten = 0
        """Highest number of an item that is gone and not remembered any more."""

    def changed(self, item: Item) -> None:
        """The item is held, and may look otherwise from now on."""
        if self._number:
            self._changed.pop(item, None)  # the latest is to be the last
            self._changed[item] = self._number
            self._gone.pop(item, None)

    def came(self, items: Iterable[Item]) -> None:
        """The items, which were not held, are. Calls no function for each."""
        if self._number:
            new = dict.fromkeys(items, self._number)
            self._changed.update(new)
            if self._gone:
                self._gone = {item: at for item, at in self._gone.items() if item not in new}

    def went(self, item: Item) -> None:
        """The item is not held any more."""
        if not self._number:
            return
        self._changed.pop(item, None)
        self._gone.pop(item, None)
        self._gone[item] = self._number
        if len(self._gone) > GONE_KEPT:
            oldest = next(iter(self._gone))
            self._forgotten = self._gone.pop(oldest)

    def asked(self) -> str:
        """Somebody is told of now: the mark with which to ask for what changes from here on."""
        self._number += 1
        return f"{self._birth}.{self._number}"

    def since(self, mark: str) -> "tuple[list[Item], list[Item]] | None":
        """What has changed, and what has gone, after the answer that had `mark`. None: that is not
        known, and all is to be told. Cost: that of what is returned."""
        birth, _, text = mark.partition(".")
        if birth != str(self._birth) or not (text.isascii() and text.isdecimal()):
            return None
        number = int(text)
        if not self._forgotten < number <= self._number:
            return None
        return _from(self._changed, number), _from(self._gone, number)


def _from(numbers: dict[Item, int], least: int) -> list[Item]:
    """Items whose number is no less than `least`: the last ones."""
    found: list[Item] = []
    for item in reversed(numbers):
        if numbers[item] < least:
            break
        found.append(item)
    return found
