"""A sink task's consumer on the embedded log."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import apsw

from headgate.connector.sink_names import SinkTopics, TopicPattern, topics_now
from headgate.membership.consumer import (
    ConsumerMember,
    ConsumerOutput,
    ConsumerSettings,
    JoinRefused,
    PartitionsAssigned,
    PartitionsRevoked,
    SendRequest,
)
from headgate.ports import (
    ConsumerRecord,
    LogBatch,
    RebalancedError,
    TopicPartition,
    TransportError,
    UnknownTopicError,
)
from headgate_embedded import arrow_batches, batches
from headgate_embedded.database import Database, Watch
from headgate_embedded.group import Coordinators, EmbeddedGroup
from headgate_embedded.record_tables import read_batches, read_committed, write_committed
from headgate_embedded.retention import check_there, first_offset

_log = logging.getLogger("headgate.embedded")

_WAIT_S: Final = 0.001
_WAIT_S_MAX: Final = 0.02
"""Longest pause between two reads of an idle consumer. Pauses grow from `_WAIT_S` up to it."""

Callback = Callable[[Sequence[TopicPartition]], None]


def _ignore(_partitions: Sequence[TopicPartition]) -> None:
    return


class EmbeddedConsumer:
    """One member of a consumer group, for one thread.

    It reads partitions without a committed offset from the first record that exists. A warning is
    logged if retention has deleted records before it. A committed offset whose record is gone is an
    error.
    """

    def __init__(
        self,
        database: Database,
        coordinators: Coordinators,
        list_topics: Callable[[], Sequence[str]],
        find_topic: Callable[[str], tuple[int, int]],
        group: str,
        topics: SinkTopics,
        client_id: str,
        settings: ConsumerSettings,
    ) -> None:
        self._database = database
        self._coordinators = coordinators
        self._find_topic = find_topic
        self._list_topics = list_topics
        self._wanted = topics
        self._topics = topics_now(topics, lambda: ())
        self._group = EmbeddedGroup(database, coordinators)
        self._member = ConsumerMember(group, client_id, self._topics, settings)
        self._watch = Watch(database)
        self._topic_watch = Watch(database)
        self._assigned: Callback = _ignore
        self._revoked: Callback = _ignore
        self._positions: dict[TopicPartition, int] = {}
        self._ready: dict[TopicPartition, list[ConsumerRecord]] = {}
        """Records that were read and decoded, but not returned by `poll` yet."""
        self._parts: dict[TopicPartition, LogBatch] = {}
        """Batches of Arrow rows that were read, but not completely returned by a poll yet."""
        self._paused: set[TopicPartition] = set()
        self._exhausted = False
        """The last read of the file found no records."""
        self._wait_s = _WAIT_S

    def poll(self, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        found = self._poll(limit, timeout_ms, whole=False)
        assert not isinstance(found, LogBatch)
        return found

    def poll_batch(self, limit: int, timeout_ms: int) -> LogBatch | Sequence[ConsumerRecord]:
        return self._poll(limit, timeout_ms, whole=True)

    def _poll(
        self, limit: int, timeout_ms: int, *, whole: bool
    ) -> LogBatch | Sequence[ConsumerRecord]:
        clock = self._coordinators.clock
        end_ms = clock.now_ms() + timeout_ms
        while True:
            self._keep_membership()
            records = self._fetch(limit, whole=whole)
            left_ms = end_ms - clock.now_ms()
            if records:
                self._wait_s = _WAIT_S
            if records or left_ms <= 0:
                return records
            time.sleep(min(self._wait_s, left_ms / 1000))
            self._wait_s = min(self._wait_s * 1.1, _WAIT_S_MAX)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._member.held)

    def on_rebalance(self, assigned: Callback, revoked: Callback) -> None:
        self._assigned = assigned
        self._revoked = revoked

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        member = self._member
        with self._database.write() as connection:
            error = self._coordinators.check(
                connection, member.group, member.member_id, member.generation
            )
            if error is not None:
                raise RebalancedError(
                    f"offsets of group {member.group} were not committed: {error} for member "
                    f"{member.member_id} in generation {member.generation}"
                )
            write_committed(connection, member.group, offsets)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition. Offset 0 means the first record that exists."""
        if not offset:
            with self._database.read() as connection:
                offset = self._beginning(connection, partition)
        self._positions[partition] = offset
        self._ready.pop(partition, None)
        self._parts.pop(partition, None)
        self._exhausted = False

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(partitions)
        self._exhausted = False

    def close(self) -> None:
        """Leave the group. Offsets may still be committed inside `revoked`."""
        # A member that could not leave is removed when its session times out.
        with suppress(TransportError):
            self._perform(self._member.leave())
        self._group.close()
        self._watch.close()
        self._topic_watch.close()

    def _look_for_topics(self) -> None:
        if isinstance(self._wanted, TopicPattern) and self._topic_watch.changed():
            with self._topic_watch.looking():
                self._topics = topics_now(self._wanted, self._list_topics)
            self._member.subscribe(self._topics)

    def _keep_membership(self) -> None:
        responses = self._group.receive()
        # After the responses were fetched, so that the leader knows all topics for which the other
        # members joined.
        self._look_for_topics()
        counts: dict[str, int] = {}
        for topic in self._topics:
            with suppress(UnknownTopicError):
                counts[topic] = self._find_topic(topic)[1]
        self._perform(self._member.advance(self._coordinators.clock.now_ms(), responses, counts))

    def _perform(self, outputs: Sequence[ConsumerOutput]) -> None:
        for output in outputs:
            match output:
                case SendRequest(request):
                    self._group.send(request)
                case PartitionsRevoked(partitions):
                    self._revoked(partitions)
                    self._positions.clear()
                    self._paused.clear()
                case PartitionsAssigned(partitions):
                    with self._database.read() as connection:
                        committed = read_committed(connection, self._member.group)
                        starts = {
                            place: committed.get(place) or self._beginning(connection, place)
                            for place in partitions
                        }
                    self._ready.clear()
                    self._parts.clear()
                    self._positions = starts
                    self._exhausted = False
                    self._assigned(partitions)
                case JoinRefused(error):
                    raise TransportError(
                        f"group {self._member.group} cannot be joined: {error.value}; its members "
                        "are no sink tasks of this cluster, name another group"
                    )

    def _beginning(self, connection: apsw.Connection, place: TopicPartition) -> int:
        """Return the offset of the first record. Warn if records before it were deleted."""
        topic, partition = place
        first = first_offset(connection, self._find_topic(topic)[0], partition)
        if first:
            _log.warning(
                "group %s begins to read %s-%d at offset %d: retention deleted the %d records "
                "before it",
                *(self._member.group, topic, partition, first, first),
            )
        return first

    def _fetch(self, limit: int, *, whole: bool) -> LogBatch | list[ConsumerRecord]:
        places = [place for place in self._positions if place not in self._paused]
        if limit <= 0 or not places or (self._exhausted and not self._watch.changed()):
            return []
        # Records that this poll leaves can be read without a further change of the file.
        self._exhausted = False
        records: list[ConsumerRecord] = []
        for place in places:
            ready = self._ready.pop(place, None)
            if ready is None:
                try:
                    with self._watch.looking():
                        found = self._read(place, limit - len(records), whole=whole)
                except TransportError:
                    if not records:
                        raise
                    break  # return the other partitions' records; the next poll raises this error
                if isinstance(found, LogBatch) and records:
                    self._parts[place] = found
                    continue  # the next poll returns it first
                if isinstance(found, LogBatch):
                    self._move(place, found.offset + found.count)
                    return found
                ready = found
            taken, rest = ready[: limit - len(records)], ready[limit - len(records) :]
            if rest:
                self._ready[place] = rest
            if not taken:
                continue
            records += taken
            self._move(place, taken[-1].offset + 1)
            if len(records) >= limit:
                break
        if not records:
            self._exhausted = True
        return records

    def _move(self, place: TopicPartition, position: int) -> None:
        # The partition moves to the end, so that the next poll begins with the others.
        self._positions.pop(place)
        self._positions[place] = position

    def _read(
        self, place: TopicPartition, limit: int, *, whole: bool
    ) -> LogBatch | list[ConsumerRecord]:
        """Return the next batch of Arrow rows, if `whole` and there is one, or the next records.

        Of Arrow rows at most `limit` records are made at a time, because that is expensive.
        """
        batch = self._parts.pop(place, None)
        if batch is None:
            start = self._positions[place]
            rows = self._stored(place, start, limit)
            if not rows or not batches.is_batch(rows[0][1]):
                return [
                    record
                    for base, data in rows
                    for record in batches.decode(*place, base, data, start)
                ]
            batch = batches.decode_batch(*place, *rows[0], start)
        if whole:
            return batch
        first, batch.skip = batch.skip, min(batch.skip + limit, batch.count)
        if batch.skip < batch.count:
            self._parts[place] = batch
        return arrow_batches.records(batch, first, batch.skip)

    def _stored(self, place: TopicPartition, start: int, limit: int) -> list[tuple[int, bytes]]:
        topic, partition = place
        number, _ = self._find_topic(topic)
        with self._database.read() as connection:
            end = 1 << 62
            rows = read_batches(connection, number, partition, start, end, limit, of_a_kind=True)
            check_there(connection, number, place, start, rows, f"group {self._member.group}")
            return rows
