"""The topics that a run has used, each reported once. Source: KIP-558.

Differs: Connect notes a source's topic when a record is acknowledged, even in a transaction that is
aborted later. Here it counts when the record is committed.
"""

from collections.abc import Iterable, Sequence

from headgate.ports import ProducerRecord
from headgate.task.messages import TopicsUsed
from headgate_runtime.tasks.lifeline import BodyLifeline
from headgate_runtime.tasks.source_batches import Sent


class UsedTopics:
    """Topics that a task has used. Each is reported once."""

    def __init__(self, lifeline: BodyLifeline) -> None:
        self._lifeline = lifeline
        self._told: set[str] = set()

    def used(self, topics: Iterable[str]) -> None:
        new = set(topics) - self._told
        if new:
            self._told |= new
            self._lifeline.report(TopicsUsed(tuple(sorted(new))))


class SentTopics:
    """Topics that a source task has used. Each counts once the log has taken a record of it.

    This costs nothing per record, except in the batch after a new topic.
    """

    def __init__(self, lifeline: BodyLifeline) -> None:
        self._topics = UsedTopics(lifeline)
        self._new: set[str] = set()
        """Topics without a record under way."""
        self._open: dict[str, int] = {}
        """Topics with a record that is sent and not settled: its number, as `Producer.send`
        counts."""
        self._next = 0

    def saw_topic(self, topic: str) -> None:
        """Announce a topic. Called once for each, before records of it are sent."""
        self._new.add(topic)

    def sent(self, records: Sequence[Sent], rows: int) -> None:
        """Note sent records. `rows` counts the rows of all batches among them."""
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
        """Note records that the log did not take. The topic's next record may count."""
        self._new |= self._settle(first, last)

    def committed(self) -> None:
        """Note that all sent records were committed."""
        self.acknowledged(0, self._next)

    def aborted(self) -> None:
        """Note that all sent records were aborted."""
        self.refused(0, self._next)

    def _settle(self, first: int, last: int) -> set[str]:
        if not self._open:
            return set()
        settled = {topic for topic, number in self._open.items() if first <= number <= last}
        for topic in settled:
            del self._open[topic]
        return settled
