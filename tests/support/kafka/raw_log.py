"""The batches of a partition as the broker keeps them, with their producers.

They include the markers that end transactions, which no consumer shows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords
from support.kafka.cluster import end_offset

_BYTES = 50_000_000
_WITH_TOPIC_NAMES = 12
"""Version of Fetch. Later versions name topics by their ids."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RawBatch:
    producer: tuple[int, int]
    """Producer id and epoch. The id is -1 without idempotence."""
    transactional: bool
    ends: str
    """``commit`` or ``abort`` for a marker, which has no records. Otherwise empty."""
    records: tuple[RawRecord, ...]


@dataclass(slots=True)
class Transaction:
    """The records of one transaction in one partition, in order."""

    producer: tuple[int, int]
    end: str = ""
    """The kind of its marker. Empty while the transaction is open."""
    records: list[RawRecord] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        return [(record.key or b"").decode() for record in self.records]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


def raw_batches(address: str, topic: str, partition: int = 0) -> list[RawBatch]:
    """Return all batches that are in a partition now, those of aborted and open transactions
    included."""
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        end = end_offset(address, topic, partition)
        found: list[RawBatch] = []
        offset = 0
        while offset < end:
            batches = list(_fetched(client, topic, partition, offset))
            assert batches, f"{topic}-{partition} ends at {end}, nothing comes at {offset}"
            found += [_raw(batch) for batch in batches]
            offset = batches[-1].next_offset
        return found
    finally:
        client.close()


def transactions(batches: Iterable[RawBatch]) -> list[Transaction]:
    """Return the transactions in the order of their ends, the open ones last.

    Raises KeyError if a marker ends a transaction that has no record in these batches: its records
    are in other partitions.
    """
    open_ones: dict[int, Transaction] = {}
    ended: list[Transaction] = []
    for batch in batches:
        if not batch.transactional:
            continue
        producer_id, epoch = batch.producer
        if batch.ends:
            transaction = open_ones.pop(producer_id)
            # The client that fences a producer ends its transaction under a later epoch.
            assert transaction.producer[1] <= epoch
            transaction.end = batch.ends
            ended.append(transaction)
        else:
            found = open_ones.setdefault(producer_id, Transaction(batch.producer))
            assert found.producer == batch.producer, "a record of another epoch"
            found.records += batch.records
    return [*ended, *open_ones.values()]


def transactions_in(address: str, topic: str, partitions: int = 1) -> list[Transaction]:
    """Return the transactions of all partitions, one partition after the other."""
    return [
        each for n in range(partitions) for each in transactions(raw_batches(address, topic, n))
    ]


def _fetched(
    client: KafkaAdminClient, topic: str, partition: int, offset: int
) -> Iterator[DefaultRecordBatch]:
    place = FetchRequest.FetchTopic.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=_BYTES
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=_BYTES,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[place])],
        max_version=_WITH_TOPIC_NAMES,
    )

    async def ask() -> Any:
        return await client._manager.send(request)

    [answered] = client._manager.run(ask).responses
    [found] = answered.partitions
    assert found.error_code == 0, f"{topic}-{partition} at {offset}: error {found.error_code}"
    records = MemoryRecords(found.records)
    while records.has_next():
        yield records.next_batch()


def _raw(batch: DefaultRecordBatch) -> RawBatch:
    producer = (batch.producer_id, batch.producer_epoch)
    if batch.is_control_batch:
        [marker] = batch
        return RawBatch(producer, True, "commit" if marker.commit else "abort", ())
    records = tuple(RawRecord(r.offset, r.timestamp, r.key, r.value) for r in batch)
    return RawBatch(producer, batch.is_transactional, "", records)
