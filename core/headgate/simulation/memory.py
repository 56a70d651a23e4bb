"""The ports in memory: one log shared by all who `connect`, in one process and under one clock.

Deterministic: same calls at the same times, same results. Held to the same contract tests as the
transports that are used for real. What a port promises to wait for, it waits for in virtual time:
`while_waiting` is called again and again and must let time pass, or others act; without it a call
that would have to wait ends as if its time were over.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.herder.calls import Call, Result
from headgate.membership.consumer import ConsumerSettings
from headgate.membership.coordinator import Coordinator, CoordinatorSettings
from headgate.membership.messages import GroupRequest, GroupResponse, JoinGroup
from headgate.ports import (
    ConsumerRecord,
    LogRecord,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
    UnknownTopicError,
)


@dataclass(slots=True)
class StoredCall:
    call_id: str
    url: str
    call: Call
    hops: int
    deadline_ms: int
    taken: bool = False
    answer: Result | None = None


class Latest:
    """A compacted topic: the latest value of each key, by when it changed."""

    def __init__(self) -> None:
        self.last = 0
        self._change_of: dict[bytes, int] = {}
        self._records: dict[int, LogRecord] = {}

    def append(self, records: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> None:
        for key, value in records:
            self.last += 1
            self._records.pop(self._change_of.get(key, 0), None)
            self._change_of[key] = self.last
            self._records[self.last] = LogRecord(self.last, key, value, now_ms)

    def read(self, position: int, limit: int) -> tuple[Sequence[LogRecord], int]:
        if position >= self.last:
            return [], position
        found = [record for change, record in self._records.items() if change > position][:limit]
        return found, found[-1].offset


class MemoryCluster:
    """The log of one simulated cluster, and its coordinator.

    Args:
        now_ms: the one clock, monotonic.
        while_waiting: see the top of this page.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        while_waiting: Callable[[], None] | None = None,
        settings: CoordinatorSettings | None = None,
        consumer: ConsumerSettings | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.while_waiting = while_waiting
        self.coordinator = Coordinator(settings or CoordinatorSettings())
        self.consumer_settings = consumer or ConsumerSettings()
        self.config: list[LogRecord] = []
        self.claimed_generation = -1
        self.claim_epoch = 0
        self.offsets = Latest()
        self.statuses = Latest()
        self.topics: dict[str, list[list[ConsumerRecord]]] = {}
        self.producers: dict[str, int] = {}
        """Epoch by transactional id."""
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.calls: dict[str, StoredCall] = {}
        self._mailboxes: dict[tuple[str, str], list[GroupResponse]] = {}
        self._names = 0

    def new_id(self) -> str:
        self._names += 1
        return str(self._names)

    # -- for the ports --

    def partitions(self, topic: str) -> int:
        return len(self.topic(topic))

    def topic(self, topic: str) -> list[list[ConsumerRecord]]:
        found = self.topics.get(topic)
        if found is None:
            raise UnknownTopicError(f"topic {topic!r} does not exist: create it first")
        return found

    def append(
        self, records: Sequence[tuple[TopicPartition, ProducerRecord]]
    ) -> list[RecordMetadata]:
        now_ms = self.now_ms()
        places: list[RecordMetadata] = []
        for (topic, partition), record in records:
            log = self.topics[topic][partition]
            places.append(RecordMetadata(topic, partition, len(log)))
            log.append(
                ConsumerRecord(
                    topic,
                    partition,
                    len(log),
                    record.key,
                    record.value,
                    record.headers,
                    now_ms if record.timestamp_ms is None else record.timestamp_ms,
                )
            )
        return places

    def set_committed(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        committed = self.committed.setdefault(group, {})
        for place, offset in offsets.items():
            if offset is None:
                committed.pop(place, None)
            else:
                committed[place] = offset

    def next_epoch(self, transactional_id: str) -> int:
        epoch = self.producers[transactional_id] = self.producers.get(transactional_id, -1) + 1
        return epoch

    def send(self, request: GroupRequest, mailbox: list[GroupResponse]) -> None:
        new_id = self.new_id()
        member_id = request.member_id
        if isinstance(request, JoinGroup) and not member_id:
            member_id = f"{request.client_id}-{new_id}"
        self._mailboxes[request.group, member_id] = mailbox
        self._deliver(self.coordinator.handle(self.now_ms(), request, new_id), member_id)

    def tick(self) -> None:
        """Let the time that passed end sessions and rounds."""
        self._deliver(self.coordinator.tick(self.now_ms()))

    def _deliver(self, responses: Sequence[GroupResponse], asker: str = "") -> None:
        """`asker` gets the responses to nobody: the refusal of a first join has no member id."""
        for response in responses:
            mailbox = self._mailboxes.get((response.group, response.member_id or asker))
            if mailbox is not None:
                mailbox.append(response)
