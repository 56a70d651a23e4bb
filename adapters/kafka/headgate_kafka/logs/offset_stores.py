"""Where the source offsets of one connector are: its own topic or the workers' global one, or both.

A connector has a topic of its own if it names one, or, under exactly-once, if its producers write
to another cluster: offsets are part of their transactions. Reads see its own topic first, then the
global one. Writes go to its own; copies go to the global one afterwards, tombstones before. A
tombstone looks like a missing record, so that one in the own topic would uncover an old offset in
the global one. Source: KIP-618, `ConnectorOffsetBackingStore`. Differs: tombstones are awaited
before anything else happens; Connect's never work under exactly-once.
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
"""How far the global topic may be ahead of a connector's own: copies are written later."""

Records = Sequence[tuple[bytes, bytes | None]]


def own_topic(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    producer_servers: str,
    *,
    exactly_once: bool,
) -> str | None:
    """The name of the connector's own offsets topic; None: it uses the workers'.

    Two topics are the same if their names are, and the lists of servers as sets of texts.
    """
    shared = worker["offset.storage.topic"]
    named = connector_config.get("offsets.storage.topic", "").strip()
    if not named and not exactly_once:
        return None
    elsewhere = servers_of(producer_servers) != servers_of(worker.get("bootstrap.servers", ""))
    return (named or shared) if elsewhere or (named or shared) != shared else None


def servers_of(text: str) -> frozenset[str]:
    """Servers that ``bootstrap.servers`` names."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class OnlyTopic:
    """Offsets of a transaction go to one topic, within it."""

    topic: str

    def before(self, offsets: Records) -> None:
        """Nothing."""

    def after(self, offsets: Records) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """Within the transaction to the connector's own topic; besides it to the global one."""

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
    """When of these records the last of the connector was written; 0: none is. Tombstones count: so
    an offset is forgotten, as long as compaction leaves them."""
    found_ms = 0
    for record in records:
        key = decode_key(record.key)
        if key is not None and key.connector == connector:
            found_ms = max(found_ms, record.timestamp_ms)
    return found_ms


def stale_own_topic(
    connector: str, own: str, shared: str, own_newest_ms: int, shared_newest_ms: int
) -> str | None:
    """What to say of an own topic that is older than the global one; None: it is not.

    So it is after exactly-once was off for a while: tasks and users then wrote to the global topic
    alone, and on the way back the own topic, which is read first, would send them back (KIP-618).

    Args:
        own_newest_ms: as `newest_ms`; 0 also where no offset stands in the own topic, which then
            decides nothing.
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
    """The own topic over the global one, for one connector. Safe from several threads.

    A key that stands in both topics, or in several orders of its names, is shown once: as the topic
    that decides has it.
    """

    def __init__(
        self,
        connector: str,
        own: KafkaKeyedLog,
        shared: KafkaKeyedLog,
        targets: OwnTopic,
        warn: Callable[[str], None],
    ) -> None:
        """`warn`: told if the own topic is older than the global one when it is read first."""
        self._warn: Callable[[str], None] | None = warn
        self._newest_ms = [0, 0]
        """When an offset was written or forgotten last, in own and global topic."""
        self._connector = connector
        self._logs = (own, shared)
        self._targets = targets
        self._mutex = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._positions = [0, 0]
        self._tables = [OffsetTable(), OffsetTable()]
        self._shown: dict[str, tuple[bytes, bytes]] = {}
        """Key and value by identity of the partition."""
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
        """Both topics as they are now."""
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
            # Also where the other topic could not be read: none of this is read again.
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
