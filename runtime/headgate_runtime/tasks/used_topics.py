"""Which topics a run has used, each told once. Source: KIP-558.

Differs from Connect, which notes a source's topic when a record of it is acknowledged, even in a
transaction that is aborted later: here it counts when the record is committed.
"""

from collections.abc import Iterable, Sequence

from headgate.ports import ProducerRecord
from headgate.task.messages import TopicsUsed
from headgate_runtime.tasks.lifeline import BodyLifeline
from headgate_runtime.tasks.source_batches import Sent


class UsedTopics:
    """Topics that a task has used."""

    def __init__(self, lifeline: BodyLifeline) -> None:
        self._lifeline = lifeline
        self._told: set[str] = set()

    def used(self, topics: Iterable[str]) -> None:
        new = set(topics) - self._told
        if new:
            self._told |= new
            self._lifeline.report(TopicsUsed(tuple(sorted(new))))


class SentTopics:
    """Topics that a source task has used: each counts once the log has taken a record of it.

    Costs nothing per record, but in the batch after a topic that is new.
    """

    def __init__(self, lifeline: BodyLifeline) -> None:
        self._topics = UsedTopics(lifeline)
        self._new: set[str] = set()
        """Nothing of them is on its way."""
        self._open: dict[str, int] = {}
        """Sent and not settled: the number of a record (as `Producer.send` counts them)."""
        self._next = 0

    def saw_topic(self, topic: str) -> None:
        """To be called once for each topic, before records of it are sent."""
        self._new.add(topic)

    def sent(self, records: Sequence[Sent], rows: int) -> None:
        """`rows` are those of `records`, each batch with all that it has."""
        if self._new:
            number = self._next
            for record in records:
                if record.topic in self._new:
                    self._new.discard(record.topic)
                    self._open[record.topic] = number
                number += 1 if isinstance(record, ProducerRecord) else record.count
        self._next += rows

    def acknowledged(self, first: int, last: int) -> None:
        self._topics.used(self._settle(first, last))

    def refused(self, first: int, last: int) -> None:
        """The log did not take these: the next record of the topic may tell."""
        self._new |= self._settle(first, last)

    def committed(self) -> None:
        """All that was sent."""
        self.acknowledged(0, self._next)

    def aborted(self) -> None:
        """All that was sent."""
        self.refused(0, self._next)

    def _settle(self, first: int, last: int) -> set[str]:
        if not self._open:
            return set()
        settled = {topic for topic, number in self._open.items() if first <= number <= last}
        for topic in settled:
            del self._open[topic]
        return settled
