"""The ports in memory: one log shared by all who `connect`, in one process and under one clock.

Deterministic: same calls at the same times, same results. Held to the same contract tests as the
transports that are used for real. What a port promises to wait for, it waits for in virtual time:
`while_waiting` is called again and again and must let time pass, or others act; without it a call
that would have to wait ends as if its time were over.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.connector.sink_names import SinkTopics
from headgate.membership.consumer import ConsumerSettings
from headgate.membership.coordinator import Coordinator, CoordinatorSettings
from headgate.membership.messages import GroupRequest, GroupResponse, JoinGroup
from headgate.ports import (
    ConsumerRecord,
    FencedError,
    IncomingCall,
    LogRecord,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
    TransportError,
    UnknownTopicError,
)
from headgate.simulation.memory_clients import Membership, MemoryConsumer, MemoryProducer


@dataclass(slots=True)
class StoredCall:
    call_id: str
    url: str
    payload: bytes
    hops: int
    deadline_ms: int
    taken: bool = False
    answer: bytes | None = None


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

    def connect(self, url: str = "") -> "MemoryTransport":
        """The ports as the worker reached at `url` uses them."""
        return MemoryTransport(self, url)

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


@dataclass(frozen=True, slots=True)
class MemoryClock:
    cluster: MemoryCluster

    def now_ms(self) -> int:
        return self.cluster.now_ms()


class MemoryTransport:
    """All ports of one worker on the shared log."""

    def __init__(self, cluster: MemoryCluster, url: str) -> None:
        self.config_log = MemoryConfigLog(cluster)
        self.offset_log = MemoryKeyedLog(cluster, cluster.offsets)
        self.status_log = MemoryKeyedLog(cluster, cluster.statuses)
        self.group = MemoryGroup(cluster)
        self.record_log = MemoryRecordLog(cluster)
        self.fencer = MemoryFencer(cluster)
        self.peers = MemoryPeers(cluster, url)
        self.clock = MemoryClock(cluster)

    def close(self) -> None:
        """Nothing is open."""


class MemoryConfigLog:
    """Privileged writers are fenced always, as on the embedded log."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._epoch: int | None = None

    def claim(self, generation: int) -> None:
        cluster = self._cluster
        if generation < cluster.claimed_generation:
            raise FencedError(
                f"the config log was claimed in generation {cluster.claimed_generation}, after "
                f"generation {generation} of this worker"
            )
        cluster.claimed_generation = generation
        cluster.claim_epoch += 1
        self._epoch = cluster.claim_epoch

    def append(self, records: Sequence[tuple[str, bytes | None]], *, privileged: bool) -> int:
        cluster = self._cluster
        if privileged and self._epoch != cluster.claim_epoch:
            raise FencedError(
                f"claim {self._epoch} of the config log is over or was never made; the last one is "
                f"{cluster.claim_epoch}, made in generation {cluster.claimed_generation}"
            )
        now_ms = cluster.now_ms()
        for key, value in records:
            cluster.config.append(LogRecord(len(cluster.config), key.encode(), value, now_ms))
        return len(cluster.config)

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        found = self._cluster.config[position : position + limit]
        return found, position + len(found)

    def end(self) -> int:
        return len(self._cluster.config)


@dataclass(frozen=True, slots=True)
class MemoryKeyedLog:
    cluster: MemoryCluster
    latest: Latest

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        self.latest.append(records, self.cluster.now_ms())

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        return self.latest.read(position, limit)

    def end(self) -> int:
        return self.latest.last

    def rest(self) -> None:
        """It holds nothing."""


@dataclass(frozen=True, slots=True)
class MemoryFencer:
    cluster: MemoryCluster

    def fence(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids:
            self.cluster.next_epoch(transactional_id)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    cluster: MemoryCluster
    mailbox: list[GroupResponse] = field(default_factory=lambda: list[GroupResponse]())

    def send(self, request: GroupRequest) -> None:
        self.cluster.send(request, self.mailbox)

    def receive(self) -> Sequence[GroupResponse]:
        self.cluster.tick()
        arrived = list(self.mailbox)
        self.mailbox.clear()
        return arrived


class MemoryRecordLog:
    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def create_topic(self, topic: str, partitions: int | None) -> None:
        partitions = 1 if partitions is None else partitions
        if partitions < 1:
            raise ValueError(f"topic {topic} with {partitions} partitions, expected at least 1")
        self._cluster.topics.setdefault(topic, [[] for _ in range(partitions)])

    def partitions(self, topic: str) -> int:
        return self._cluster.partitions(topic)

    def topic_names(self) -> Sequence[str]:
        return list(self._cluster.topics)

    def end_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        return {
            (topic, partition): len(records)
            for topic in topics
            for partition, records in enumerate(self._cluster.topics.get(topic, ()))
        }

    def start_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(self.end_offsets(topics), 0)

    def read(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> Sequence[ConsumerRecord]:
        start = max(start, 0)
        return self._cluster.topic(topic)[partition][start : min(end, start + limit)]

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        return dict(sorted(self._cluster.committed.get(group, {}).items()))

    def commit_unguarded(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        self._cluster.set_committed(group, offsets)

    def producer(
        self, client_id: str, transactional_id: str | None, membership: Membership | None
    ) -> MemoryProducer:
        return MemoryProducer(self._cluster, client_id, transactional_id, membership)

    def consumer(self, group: str, topics: SinkTopics, client_id: str) -> MemoryConsumer:
        return MemoryConsumer(self._cluster, MemoryGroup(self._cluster), group, topics, client_id)


@dataclass(frozen=True, slots=True)
class MemoryPeers:
    cluster: MemoryCluster
    url: str

    def call(self, url: str, payload: bytes, hops: int, timeout_ms: int) -> bytes:
        cluster = self.cluster
        call = StoredCall(cluster.new_id(), url, payload, hops, cluster.now_ms() + timeout_ms)
        cluster.calls[call.call_id] = call
        while call.answer is None and cluster.now_ms() < call.deadline_ms:
            if cluster.while_waiting is None:
                break
            cluster.while_waiting()
        del cluster.calls[call.call_id]
        if call.answer is None:
            raise TransportError(
                f"{url} did not answer within {timeout_ms} ms; it may have acted all the same"
            )
        return call.answer

    def incoming(self) -> Sequence[IncomingCall]:
        now_ms = self.cluster.now_ms()
        found: list[IncomingCall] = []
        for call in self.cluster.calls.values():
            if call.url == self.url and not call.taken and call.deadline_ms > now_ms:
                call.taken = True
                left = call.deadline_ms - now_ms
                found.append(IncomingCall(call.call_id, call.payload, call.hops, left))
        return found

    def answer(self, call_id: str, payload: bytes) -> None:
        call = self.cluster.calls.get(call_id)
        if call is not None and call.answer is None:
            call.answer = payload
