"""Reads a cluster on Kafka from outside: its group first, then its topics to their ends.

It joins nothing, creates nothing and writes nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from headgate.connector.sink_names import sink_group, sink_topics, topic_pattern, topics_now
from headgate.java.pattern import JavaPatternError
from headgate.ports import ConfigLog, KeyedLog, LogRecord, RecordLog, TransportError
from headgate.topics.config_events import Config
from headgate.topics.config_records import decode
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate.topics.offsets import OffsetTable, OffsetView, fold_offsets
from headgate.topics.status import StatusView, decode_status, fold_statuses
from headgate_runtime.observe.view import REBALANCING, GroupLook, Look, SinkProgress, SourceOffset
from headgate_runtime.up.observe import kind_of

EXACTLY_ONCE_KEY = "exactly.once.source.support"
_AGAIN_S = 0.1
BATCH = 5_000


class Source(Protocol):
    """The observed cluster. `headgate_kafka.observer` implements it."""

    @property
    def config_log(self) -> ConfigLog: ...
    @property
    def status_log(self) -> KeyedLog: ...
    @property
    def record_log(self) -> RecordLog: ...
    @property
    def topics(self) -> Mapping[str, str]: ...

    @property
    def worker(self) -> Mapping[str, str]:
        """The known properties of its workers."""
        ...

    def describe_group(self) -> GroupLook: ...

    def offset_log(self, topic: str | None) -> KeyedLog:
        """Return an offsets topic of this cluster. None: the workers' global one."""
        ...

    def elsewhere(self, config: Config) -> str | None:
        """Return the servers of another cluster, if this connector's producers write to one. They
        are as written in its config or the worker's."""
        ...

    def topic_names(self) -> Sequence[str]:
        """Return the present names of all topics."""
        ...

    def close(self) -> None: ...


class _Offsets:
    """One offsets topic that is followed."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._position = 0
        self.table = OffsetTable()

    def read(self) -> None:
        end = self._log.end()
        while (before := self._position) < end:
            records, self._position = self._log.read(before)
            if self._position == before:
                raise TransportError(f"offsets end at {end}, nothing is read at {before}")
            self.table = fold_offsets(self.table, records)


class ClusterReader:
    """Follows one cluster. For one thread."""

    def __init__(self, source: Source, parse: Callable[[bytes], Any] | None = None) -> None:
        self._source = source
        self._parse = parse
        self._state = ConfigState()
        self._statuses = StatusView()
        self._positions = {"config": 0, "status": 0}
        self._offsets: dict[str | None, _Offsets] = {}
        self._problems: list[str] = []

    def look(self, patience_s: float = 0.0) -> Look:
        """Look at the cluster once.

        Args:
            patience_s: how long to wait for the end of a rebalance. During one, brokers do not show
                what members say.

        Raises:
            TransportError: the group or the config topic cannot be reached. Other failures to read
                are in `Look.problems`.
        """
        self._problems = []
        until = time.monotonic() + patience_s
        seen: dict[str, str] = {}
        while (group := self._source.describe_group()).state in REBALANCING:
            seen.update(_members(group))
            if time.monotonic() >= until:
                break
            time.sleep(_AGAIN_S)
        self._follow("config", self._source.config_log, self._on_config)
        self._tried(
            self._source.topics["status"],
            lambda: self._follow("status", self._source.status_log, self._on_statuses),
        )
        configs = {
            name: self._state.entries[name].config or {} for name in self._state.connector_names()
        }
        sinks = [name for name, config in configs.items() if kind_of(config) == "sink"]
        sources = [name for name in configs if name not in sinks]
        self._table(None)  # the global topic's unusable records are shown for any connector
        source_offsets = {name: self._source_offsets(name, configs[name]) for name in sources}
        sink_progress = {name: self._progress(name, configs[name]) for name in sinks}
        # If two clusters share a group, a look may see one of them alone. Only the change of
        # members shows both.
        now = _members(group)
        after = _members(self._source.describe_group()) if patience_s else now
        passing = (seen | after).items() - now.items() | now.items() - after.items()
        return Look(
            group=group,
            topics=self._source.topics,
            state=self._state,
            statuses=self._statuses,
            source_offsets=source_offsets,
            offset_tables={
                topic or self._source.topics["offset"]: offsets.table
                for topic, offsets in self._offsets.items()
            },
            sink_progress=sink_progress,
            passing=tuple(sorted({client_id for _, client_id in passing})),
            exactly_once=self._exactly_once,
            problems=tuple(dict.fromkeys(self._problems)),
        )

    def close(self) -> None:
        self._source.close()

    # -- topics --

    def _follow(
        self,
        which: str,
        log: ConfigLog | KeyedLog,
        on_records: Callable[[list[LogRecord]], None],
    ) -> None:
        end = log.end()
        while self._positions[which] < end:
            before = self._positions[which]
            records, self._positions[which] = log.read(before, BATCH)
            on_records(list(records))
            if self._positions[which] == before:
                raise TransportError(
                    f"the {which} topic ends at {end}, nothing is read at {before}"
                )

    def _on_config(self, records: list[LogRecord]) -> None:
        events = [decode(r.offset, r.key, r.value, self._parse) for r in records]
        self._state = fold(self._state, events)

    def _on_statuses(self, records: list[LogRecord]) -> None:
        events = [decode_status(r.key, r.value, self._parse, r.found_at) for r in records]
        self._statuses = fold_statuses(self._statuses, events)

    def _tried(self, topic: str, read: Callable[[], None], whose: str = "") -> None:
        """Read a topic, and note a failure. `whose` follows the topic's name if it does not
        exist."""
        try:
            read()
        except TransportError as error:
            if self._is_there(topic):
                self._problems.append(str(error))
            else:
                self._problems.append(
                    f"there is no topic {topic}{whose}, or this principal may not see it"
                )

    def _is_there(self, topic: str) -> bool:
        """Return whether a topic exists. Also True if that cannot be told."""
        try:
            return topic in self._source.topic_names()
        except TransportError:
            return True

    # -- progress --

    @property
    def _exactly_once(self) -> bool | None:
        """Whether the workers have exactly-once sources. None: it is not known."""
        support = self._source.worker.get(EXACTLY_ONCE_KEY)
        return None if support is None else support.strip().lower() == "enabled"

    def _source_offsets(self, name: str, config: Config) -> tuple[SourceOffset, ...]:
        """Return the source offsets that are on this cluster. Those of a connector's own topic, on
        any cluster, are copied to the global topic. Source: `headgate_kafka.logs.offset_stores`."""
        named = (config.get("offsets.storage.topic") or "").strip()
        elsewhere = self._source.elsewhere(config)
        shared_table, own_table = self._table(None), None
        if elsewhere is not None:
            self._problems.extend(self._about_elsewhere(name, named, elsewhere))
        elif named not in ("", self._source.topics["offset"]):
            own_table = self._table(named, f", which {name} names in offsets.storage.topic")
        view = OffsetView(shared_table, own_table)
        return tuple(
            SourceOffset(one.partition, one.offset, one.problem) for one in view.partitions(name)
        )

    def _about_elsewhere(self, name: str, named: str, servers: str) -> Iterator[str]:
        """Yield a message if a connector's offsets are on another cluster. A topic that it names is
        always used. Otherwise they are with its records under exactly-once only. No task had
        exactly-once if no task count was recorded."""
        shared, condition = self._source.topics["offset"], ""
        if not named and not self._exactly_once:
            if self._exactly_once is False or self._state.entries[name].fencing_count is None:
                return
            condition = f", if {EXACTLY_ONCE_KEY} is enabled (--properties with a worker's file)"
        yield (
            f"{name} {'may keep' if condition else 'keeps'} its offsets in topic "
            f"{named or shared} at {servers}{condition}: not looked at. Shown are the copies in "
            f"{shared}, which may be older"
        )

    def _table(self, topic: str | None, whose: str = "") -> OffsetTable:
        offsets = self._offsets.get(topic)
        if offsets is None:
            offsets = self._offsets[topic] = _Offsets(self._source.offset_log(topic))
        self._tried(topic or self._source.topics["offset"], offsets.read, whose)
        return offsets.table

    def _progress(self, name: str, config: Config) -> SinkProgress:
        group = sink_group(name, config, self._source.worker)
        log = self._source.record_log
        try:
            ends = log.end_offsets(self._topics_of(config))
            committed = log.committed(group)
        except TransportError as error:
            self._problems.append(str(error))
            return SinkProgress(group, {}, {})
        except JavaPatternError as error:
            self._problems.append(f"{name}: {error}; its lag is not known")
            return SinkProgress(group, {}, {})
        return SinkProgress(group, {p: o for p, o in committed.items() if p in ends}, dict(ends))

    def _topics_of(self, config: Config) -> list[str]:
        pattern = topic_pattern(config, self._source.worker)
        return topics_now(pattern or sink_topics(config), self._source.topic_names)


def _members(group: GroupLook) -> dict[str, str]:
    """Return the client ids, by member id."""
    return {member.member_id: member.client_id for member in group.members}
