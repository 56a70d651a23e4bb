"""The record log on the embedded log: data topics and consumer groups."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.connector.sink_names import SinkTopics
from headgate.connector.topic_names import topic_fault
from headgate.log.partitions import check_partitions
from headgate.log.record_columns import RecordColumns
from headgate.log.retention import LogLimits
from headgate.membership.consumer import ConsumerSettings
from headgate.ports import (
    NO_CONFIG,
    Consumer,
    ConsumerRecord,
    LogBatch,
    RefusedError,
    TopicPartition,
    UnknownTopicError,
)
from headgate_embedded import batches
from headgate_embedded.consumer import EmbeddedConsumer
from headgate_embedded.database import Database
from headgate_embedded.group import Coordinators
from headgate_embedded.producer import NO_LIMITS, EmbeddedProducer, Membership
from headgate_embedded.record_tables import read_batches, read_committed, write_committed
from headgate_embedded.retention import check_there, first_offset


class EmbeddedRecordLog:
    def __init__(
        self,
        database: Database,
        coordinators: Coordinators,
        settings: ConsumerSettings,
        compression: str = "none",
        limits: LogLimits = NO_LIMITS,
    ) -> None:
        if compression not in batches.COMPRESSIONS:
            raise ValueError(
                f"compression {compression!r}, expected one of {', '.join(batches.COMPRESSIONS)}"
            )
        self._database = database
        self._coordinators = coordinators
        self._settings = settings
        self._compression = compression
        self._limits = limits
        self._topics: dict[str, tuple[int, int]] = {}

    def create_topic(
        self,
        topic: str,
        partitions: int | None,
        *,
        replicas: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
    ) -> None:
        """Create a topic if it does not exist. `replicas` and `config` are ignored: one file has no
        replicas, and no settings of single topics.

        Names must be valid in Kafka. A topic with another name, which an earlier version may have
        created, remains usable.
        """
        partitions = 1 if partitions is None else partitions
        if partitions < 1:
            raise ValueError(f"topic {topic} with {partitions} partitions, expected at least 1")
        if fault := topic_fault(topic):
            with self._database.read() as connection:
                there = connection.execute("select 1 from topics where name = ?", (topic,))
                if there.fetchone() is not None:
                    return
            raise RefusedError(f"topic {fault}")
        with self._database.write() as connection:
            row = connection.execute(
                "insert or ignore into topics(name, partitions) values(?, ?) returning id",
                (topic, partitions),
            ).fetchone()
            if row is not None:
                connection.executemany(
                    "insert into heads(topic, part, next) values(?, ?, 0)",
                    [(row[0], part) for part in range(partitions)],
                )

    def partitions(self, topic: str) -> int:
        return self._topic(topic)[1]

    def topic_names(self) -> Sequence[str]:
        with self._database.read() as connection:
            return [name for (name,) in connection.execute("select name from topics")]

    def end_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        with self._database.read() as connection:
            for topic in topics:
                rows = connection.execute(
                    "select part, next from heads join topics on topics.id = heads.topic "
                    "where topics.name = ? order by part",
                    (topic,),
                )
                ends.update({(topic, part): position for part, position in rows})
        return ends

    def start_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        starts: dict[TopicPartition, int] = {}
        with self._database.read() as connection:
            for topic in topics:
                rows: list[Any] = connection.execute(
                    "select id, part from heads join topics on topics.id = heads.topic "
                    "where topics.name = ? order by part",
                    (topic,),
                ).fetchall()
                for number, part in rows:
                    starts[topic, part] = first_offset(connection, number, part)
        return starts

    def read(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> Sequence[ConsumerRecord]:
        number, _ = self._topic(topic)
        with self._database.read() as connection:
            rows = read_batches(connection, number, partition, start, end, limit)
            if start < end:
                check_there(connection, number, (topic, partition), start, rows, "a reader")
        records: list[ConsumerRecord] = []
        for base, data in rows:
            records += batches.decode(topic, partition, base, data, start, limit - len(records))
        while records and records[-1].offset >= end:
            records.pop()
        return records

    def read_columns(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> RecordColumns | LogBatch:
        """As `read`, but return columns, or a batch of Arrow rows as it is stored."""
        number, _ = self._topic(topic)
        place = (topic, partition)
        with self._database.read() as connection:
            rows = read_batches(connection, number, partition, start, end, limit, of_a_kind=True)
            if start < end:
                check_there(connection, number, place, start, rows, "a reader")
        if rows and batches.is_batch(rows[0][1]):
            base, data = rows[0]
            return batches.decode_batch(topic, partition, base, data, start)
        return batches.StoredColumns(place, rows, start, end)

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        with self._database.read() as connection:
            return read_committed(connection, group)

    def commit_unguarded(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        check_partitions(offsets, self.end_offsets)
        with self._database.write() as connection:
            write_committed(connection, group, offsets)

    def producer(
        self, client_id: str, transactional_id: str | None, membership: Membership | None
    ) -> EmbeddedProducer:
        return EmbeddedProducer(
            self._database,
            self.partitions,
            self._coordinators.is_member,
            client_id,
            transactional_id,
            membership,
            self._compression,
            self._limits,
        )

    def consumer(self, group: str, topics: SinkTopics, client_id: str) -> Consumer:
        return EmbeddedConsumer(
            self._database,
            self._coordinators,
            self.topic_names,
            self._topic,
            group,
            topics,
            client_id,
            self._settings,
        )

    def _topic(self, topic: str) -> tuple[int, int]:
        """Return a topic's id in the file and its partition count. They are cached, since topics
        are never changed or removed."""
        known = self._topics.get(topic)
        if known is None:
            with self._database.read() as connection:
                row = connection.execute(
                    "select id, partitions from topics where name = ?", (topic,)
                ).fetchone()
            if row is None:
                raise UnknownTopicError(f"topic {topic!r} does not exist: create it first")
            known = self._topics[topic] = (int(row[0]), int(row[1]))
        return known
