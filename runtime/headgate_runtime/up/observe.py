"""Observes a cluster from outside: asks its workers and reads its log. It changes nothing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

from headgate import wire
from headgate.connector.config_providers import has_references
from headgate.connector.sink_names import sink_group, sink_topics, topic_pattern, topics_now
from headgate.herder.messages import DescribeWorker, Failure, ViewOfWorker, WorkerView
from headgate.ids import State
from headgate.java.pattern import JavaPatternError
from headgate.ports import TopicPartition, TransportError
from headgate.topics.config_events import Config
from headgate.topics.config_records import decode
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState, ConnectorEntry
from headgate.topics.status import StatusView, decode_status, fold_statuses
from headgate_runtime.plugins.find import PluginError, connector_kind, find_connector
from headgate_runtime.transports.select import Transport
from headgate_runtime.up.references import resolved
from headgate_runtime.up.snapshot import ConnectorSnapshot
from headgate_runtime.worker.traces import first_words

DESCRIBE_TIMEOUT_MS = 1_000
BATCH = 5_000
CALLS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the log."""

    state: ConfigState
    connectors: tuple[ConnectorSnapshot, ...]
    failures: Mapping[str, str]


class Observer:
    """Follows one cluster. `describe` asks several workers at once. All else is for one thread."""

    def __init__(self, transport: Transport, named: Mapping[str, Config]) -> None:
        """Observe through `transport`. `named` has the connectors of the pipeline file."""
        self._transport = transport
        self._named = named
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="describe")
        self._workers: defaultdict[str, ViewOfWorker] = defaultdict(ViewOfWorker)
        """What is known of each worker, by URL."""
        self._config_position = 0
        self._status_position = 0
        self.state = ConfigState()
        self._statuses = StatusView()
        self._shown: dict[str, tuple[ConnectorEntry | None, ConnectorSnapshot]] = {}
        """Connectors that are described by the config topic alone, with their entries in it."""
        self._failed: tuple[StatusView, Mapping[str, str]] = (self._statuses, {})
        """Failures by connector or task, and the statuses from which they were taken."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def describe(self, urls: Sequence[str]) -> list[WorkerView | None]:
        """Return the views of the workers at `urls`. None: no answer came in time."""
        known = [self._workers[url] for url in urls]
        return list(self._threads.map(self._describe, urls, known))

    def told(self, urls: Iterable[str]) -> int:
        """Return the number of connectors and tasks in the workers' last answers."""
        return sum(self._workers[url].changed for url in urls)

    def _describe(self, url: str, known: ViewOfWorker) -> WorkerView | None:
        """Ask a worker. Its answer has what changed since its last one, and is merged into its view
        here."""
        call = DescribeWorker(known.mark)
        try:
            result = self._transport.peers.call(url, call, 0, DESCRIBE_TIMEOUT_MS)
        except TransportError:
            return None
        if isinstance(result, Failure):
            return None
        return known.take(wire.from_plain(WorkerView, result.value))

    def read(self) -> Seen:
        """Read the config topic and the status topic to their ends, and how far the sinks are."""
        self._read_config()
        self._read_statuses()
        names = list(self.state.connector_names())
        self._shown = {name: known for name in names if (known := self._shown.get(name))}
        return Seen(self.state, tuple(self._known(name) for name in names), self._failures())

    def _read_config(self) -> None:
        while True:
            records, self._config_position = self._transport.config_log.read(
                self._config_position, BATCH
            )
            if not records:
                return
            events = [decode(record.offset, record.key, record.value) for record in records]
            self.state = fold(self.state, events)

    def _read_statuses(self) -> None:
        while True:
            records, self._status_position = self._transport.status_log.read(
                self._status_position, BATCH
            )
            if not records:
                return
            events = [decode_status(record.key, record.value) for record in records]
            self._statuses = fold_statuses(self._statuses, events)

    def _known(self, name: str) -> ConnectorSnapshot:
        """Return a connector. A source stays as it was until the config topic has something new on
        it."""
        entry = self.state.entry(name)
        then, known = self._shown.get(name, (None, None))
        if known is not None and then is entry:
            return known
        made = self._connector(name)
        if made.kind != "sink" and not has_references((entry and entry.config) or {}):
            self._shown[name] = entry, made
        return made

    def _connector(self, name: str) -> ConnectorSnapshot:
        entry = self.state.entry(name)
        config: Config = resolved((entry.config if entry is not None else None) or {})
        kind = kind_of(config)
        ends, consumed = self._progress(name, config) if kind == "sink" else ({}, {})
        committed = entry is not None and entry.task_count is not None and not entry.inconsistent
        return ConnectorSnapshot(
            name=name,
            kind=kind,
            named=name in self._named,
            target_state=self.state.target_state(name),
            tasks=self.state.tasks(name),
            committed=committed,
            ends=ends,
            consumed=consumed,
        )

    def _progress(
        self, name: str, config: Config
    ) -> tuple[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int]]:
        """Return end offsets and consumed offsets. The ends are read first, so that a sink which
        has caught up with them really has."""
        log = self._transport.record_log
        group = sink_group(name, config)
        topics = self._topics(config) or sorted({topic for topic, _ in log.committed(group)})
        ends = dict(log.end_offsets(topics))
        # Without a commit, a sink begins with the first record in the log.
        consumed = {**log.start_offsets(topics), **log.committed(group)}
        return ends, {
            partition: consumed[partition] for partition in ends if consumed.get(partition)
        }

    def topic_ends(self, configs: Iterable[Config]) -> Mapping[TopicPartition, int]:
        """Return the end offsets of the topics that `configs` name and that exist."""
        return dict(self._transport.record_log.end_offsets(self._all_topics(configs)))

    def topic_starts(self, configs: Iterable[Config]) -> Mapping[TopicPartition, int]:
        """Return the offsets of the first records of the same topics."""
        return dict(self._transport.record_log.start_offsets(self._all_topics(configs)))

    def _all_topics(self, configs: Iterable[Config]) -> list[str]:
        topics: set[str] = set()
        for config in configs:
            topics.update(self._topics(config))
            topics.update(topic for topic in (config.get("topic"),) if topic)
        return sorted(topics)

    def _topics(self, config: Config) -> list[str]:
        try:
            topics = topic_pattern(config) or sink_topics(config)
        except JavaPatternError:
            return []  # its tasks report it
        return topics_now(topics, self._transport.record_log.topic_names)

    def _failures(self) -> Mapping[str, str]:
        statuses, known = self._failed
        if statuses is not self._statuses:
            known = self._failures_now()
            self._failed = self._statuses, known
        return known

    def _failures_now(self) -> dict[str, str]:
        failures = {
            name: first_words(status.trace)
            for name, status in self._statuses.connectors.items()
            if status.state is State.FAILED
        }
        for name, tasks in self._statuses.tasks.items():
            for number, status in tasks.items():
                if status.state is State.FAILED:
                    failures[f"{name}-{number}"] = first_words(status.trace)
        return failures


def kind_of(config: Config) -> str:
    """Return whether the connector is a source or a sink. The class decides if it is installed
    here, otherwise the keys that sinks must have."""
    try:
        return _kind_of_class(config.get("connector.class") or "")
    except PluginError:
        return "sink" if config.get("topics") or config.get("topics.regex") else "source"


@lru_cache(maxsize=1_000)
def _kind_of_class(name: str) -> str:
    """Return the kind of a class. It is cached, because every look asks for every connector. Raises
    `PluginError`."""
    return connector_kind(find_connector(name))
