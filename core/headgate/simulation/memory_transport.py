"""All ports on one `MemoryCluster`, as a worker opens them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.connector.sink_names import SinkTopics
from headgate.connector.topic_names import topic_fault
from headgate.herder.calls import Call, Result
from headgate.log.partitions import check_partitions
from headgate.membership.messages import GroupRequest, GroupResponse
from headgate.ports import (
    NO_CONFIG,
    ConsumerRecord,
    FencedError,
    IncomingCall,
    LogRecord,
    RefusedError,
    TopicPartition,
    TransportError,
)
from headgate.simulation.memory import Latest, MemoryCluster, StoredCall
from headgate.simulation.memory_clients import Membership, MemoryConsumer, MemoryProducer


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

    def create_topic(
        self,
        topic: str,
        partitions: int | None,
        *,
        replicas: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
    ) -> None:
        partitions = 1 if partitions is None else partitions
        if partitions < 1:
            raise ValueError(f"topic {topic} with {partitions} partitions, expected at least 1")
        if fault := topic_fault(topic):
            raise RefusedError(f"topic {fault}")
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
        check_partitions(offsets, self.end_offsets)
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

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        cluster = self.cluster
        stored = StoredCall(cluster.new_id(), url, call, hops, cluster.now_ms() + timeout_ms)
        cluster.calls[stored.call_id] = stored
        while stored.answer is None and cluster.now_ms() < stored.deadline_ms:
            if cluster.while_waiting is None:
                break
            cluster.while_waiting()
        del cluster.calls[stored.call_id]
        if stored.answer is None:
            raise TransportError(
                f"{url} did not answer within {timeout_ms} ms; it may still have acted"
            )
        return stored.answer

    def incoming(self) -> Sequence[IncomingCall]:
        now_ms = self.cluster.now_ms()
        found: list[IncomingCall] = []
        for call in self.cluster.calls.values():
            if call.url == self.url and not call.taken and call.deadline_ms > now_ms:
                call.taken = True
                left = call.deadline_ms - now_ms
                found.append(IncomingCall(call.call_id, call.call, call.hops, left))
        return found

    def answer(self, call_id: str, result: Result) -> None:
        call = self.cluster.calls.get(call_id)
        if call is not None and call.answer is None:
            call.answer = result
