"""The topics with one connector's source offsets: its own topic, the workers' global one, or both.

A connector has its own offsets topic if its config names one. Under exactly-once it also has one if
its producers write to another cluster, because offsets are part of their transactions.

A key is looked up in the own topic first, then in the global one. Offsets are written to the own
topic, and copied to the global one afterwards. Tombstones are written to the global topic before:
a tombstone in the own topic alone would uncover an older offset in the global one.

Source: KIP-618, `ConnectorOffsetBackingStore`. Differs: the write of a tombstone to the global
topic is awaited before anything else happens. Connect's tombstones never work under exactly-once.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.ports import LogRecord, TransportError
from headgate.topics.offsets import (
    OffsetTable,
    OffsetView,
    StoredOffset,
    decode_key,
    fold_offsets,
    partition_identity,
)
from headgate_kafka.logs.keyed_log import Changes, KafkaKeyedLog
from headgate_kafka.logs.writing import PlainWriter

STALE_MS: Final = 60_000
"""How much newer the global topic may be than a connector's own without a warning. Copies are
written later than the offsets themselves."""

Records = Sequence[tuple[bytes, bytes | None]]


def own_topic(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    producer_servers: str,
    *,
    exactly_once: bool,
) -> str | None:
    """Return the name of the connector's own offsets topic. None: it uses the workers' topic.

    Two topics are the same if their names are equal and their ``bootstrap.servers`` have the same
    entries.
    """
    shared = worker["offset.storage.topic"]
    named = connector_config.get("offsets.storage.topic", "").strip()
    if not named and not exactly_once:
        return None
    elsewhere = servers_of(producer_servers) != servers_of(worker.get("bootstrap.servers", ""))
    return (named or shared) if elsewhere or (named or shared) != shared else None


def servers_of(text: str) -> frozenset[str]:
    """Return the entries of ``bootstrap.servers``."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class OnlyTopic:
    """The target of a connector whose offsets go to one topic, within the transaction."""

    topic: str

    def before(self, offsets: Records) -> None:
        """Do nothing."""

    def after(self, offsets: Records) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """The target of a connector with its own offsets topic. Offsets go there within the
    transaction, and outside it to the global topic."""

    topic: str
    shared_topic: str
    shared_writer: PlainWriter

    def before(self, offsets: Records) -> None:
        tombstones = [(key, value) for key, value in offsets if value is None]
        if tombstones:
            self.shared_writer.append(self.shared_topic, tombstones)

    def after(self, offsets: Records) -> None:
        copies = [(key, value) for key, value in offsets if value is not None]
        if copies:
            self.shared_writer.append_later(self.shared_topic, copies)


def newest_ms(records: Sequence[LogRecord], connector: str) -> int:
    """Return the timestamp, in ms, of the connector's newest record. 0: there is none.

    Tombstones count, as long as compaction has not removed them, because deleting an offset is a
    change too.
    """
    found_ms = 0
    for record in records:
        key = decode_key(record.key)
        if key is not None and key.connector == connector:
            found_ms = max(found_ms, record.timestamp_ms)
    return found_ms


def stale_own_topic(
    connector: str, own: str, shared: str, own_newest_ms: int, shared_newest_ms: int
) -> str | None:
    """Return a warning if the own topic is older than the global one. None: it is not.

    This happens after exactly-once was disabled for a while. Tasks and users then wrote to the
    global topic alone. When exactly-once is enabled again, the own topic, which is read first,
    sends the tasks back to old offsets (KIP-618).

    Args:
        own_newest_ms: as `newest_ms`. 0 also if the own topic has no offset, and so hides none of
            the global topic's.
    """
    behind_ms = shared_newest_ms - own_newest_ms
    if not own_newest_ms or behind_ms <= STALE_MS:
        return None
    return (
        f"{connector}: offsets in its own topic {own} are {behind_ms // 1000} s older than those "
        f"in {shared}, and they win: its tasks go back to where they were then, and what came "
        "since is read again. Stop the connector and alter its offsets to where it should go on"
    )


class CombinedOffsetLog:
    """The own topic layered over the global one, for one connector. Safe from several threads.

    A source partition may be in both topics, or under several keys that differ in the order of
    their JSON names. It is shown once, with the offset of the topic that takes precedence.
    """

    def __init__(
        self,
        connector: str,
        own: KafkaKeyedLog,
        shared: KafkaKeyedLog,
        targets: OwnTopic,
        warn: Callable[[str], None],
    ) -> None:
        """
        Args:
            warn: called if the own topic is older than the global one at the first `end`.
        """
        self._warn: Callable[[str], None] | None = warn
        self._newest_ms = [0, 0]
        """Timestamps of the newest change of an offset, in the own and in the global topic."""
        self._connector = connector
        self._logs = (own, shared)
        self._targets = targets
        self._mutex = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._positions = [0, 0]
        self._tables = [OffsetTable(), OffsetTable()]
        self._shown: dict[str, tuple[bytes, bytes]] = {}
        """Key and value that are shown, by the identity of the source partition."""
        self._changes = Changes()

    def append(self, records: Records) -> None:
        self._targets.before(records)
        self._logs[0].append(records)
        self._targets.after(records)

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        with self._mutex:
            self._merge()
            return self._changes.after(position, limit)

    def end(self) -> int:
        ends = [log.end() for log in self._logs]
        with self._mutex:
            self._merge(ends)
            self._say_if_stale()
            return self._changes.last

    def view(self) -> OffsetView:
        """Return the offsets in both topics, as they are now."""
        self.end()
        with self._mutex:
            return OffsetView(shared=self._tables[1], own=self._tables[0])

    def rest(self) -> None:
        with self._mutex:
            for log in self._logs:
                log.rest()
            self._begin()

    def close(self) -> None:
        for log in self._logs:
            log.close()

    def _merge(self, ends: Sequence[int] = (0, 0)) -> None:
        touched: dict[str, None] = {}
        try:
            for which, log in enumerate(self._logs):
                self._read_on(which, log, ends[which], touched)
        finally:
            # Also if the other topic could not be read: these records are not read a second time.
            for identity in touched:
                self._show(identity)

    def _read_on(self, which: int, log: KafkaKeyedLog, end: int, touched: dict[str, None]) -> None:
        while True:
            before = self._positions[which]
            records, self._positions[which] = log.read(before)
            for record in records:
                key = decode_key(record.key)
                if key is not None and key.connector == self._connector:
                    touched[partition_identity(key.partition)] = None
            newest = newest_ms(records, self._connector)
            self._newest_ms[which] = max(self._newest_ms[which], newest)
            self._tables[which] = fold_offsets(self._tables[which], records)
            if records:
                continue
            if self._positions[which] >= end:
                return
            raise TransportError(f"topic {log.topic!r} ends at {end}, nothing is read at {before}")

    def _say_if_stale(self) -> None:
        warn, self._warn = self._warn, None
        if warn is not None:
            own, shared = (log.topic for log in self._logs)
            own_ms, shared_ms = self._newest_ms
            stands = self._connector in self._tables[0].connectors
            text = stale_own_topic(self._connector, own, shared, own_ms if stands else 0, shared_ms)
            if text is not None:
                warn(text)

    def _show(self, identity: str) -> None:
        now = self._deciding(identity)
        before = self._shown.get(identity)
        if before is not None and (now is None or now.newest_key != before[0]):
            self._changes.add(before[0], None, 0)
        if now is None:
            self._shown.pop(identity, None)
            return
        key, stored = now.newest_key, now.newest
        if before != (key, stored.value):
            self._shown[identity] = key, stored.value
            self._changes.add(key, stored.value, stored.timestamp_ms, stored.place)

    def _deciding(self, identity: str) -> StoredOffset | None:
        for table in self._tables:
            stored = table.connectors.get(self._connector, {}).get(identity)
            if stored is not None:
                return stored
        return None
