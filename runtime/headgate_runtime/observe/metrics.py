"""What a worker, or all workers of ``headgate up``, show to Prometheus.

Two spellings: ours (``headgate_…``), and those that common Kafka Connect dashboards chart
(``kafka_connect_…``, as Strimzi's JMX rules name them). Values are what each worker says of what it
runs, at the moment of the scrape; docs/run/metrics.md has the table.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from headgate.herder.messages import LoopBusy, TaskView, WorkerView
from headgate.ids import State
from headgate.task.messages import BatchDone, Measured

LAG: TypeAlias = Mapping[str, int]
_Family: TypeAlias = GaugeMetricFamily | CounterMetricFamily | SummaryMetricFamily
_STATES = tuple(State)
_TASK_COUNTS = (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED)


class _Table:
    """Families of samples by name, in the order in which they first came."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def gauge(self, name: str, doc: str, labels: Mapping[str, str], value: float) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = GaugeMetricFamily(name, doc, labels=list(labels))
        assert isinstance(family, GaugeMetricFamily)
        family.add_metric(list(labels.values()), value)

    def counter(self, name: str, doc: str, labels: Mapping[str, str], value: float) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = CounterMetricFamily(name, doc, labels=list(labels))
        assert isinstance(family, CounterMetricFamily)
        family.add_metric(list(labels.values()), value)

    def summary(
        self, name: str, doc: str, labels: Mapping[str, str], count: int, total: float
    ) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = SummaryMetricFamily(name, doc, labels=list(labels))
        assert isinstance(family, SummaryMetricFamily)
        family.add_metric(list(labels.values()), count, total)

    def families(self) -> Iterator[Metric]:
        yield from self._families.values()


def metrics(views: Sequence[WorkerView], lag: LAG | None = None) -> bytes:
    """The text of one scrape.

    Args:
        views: what the workers said of themselves.
        lag: records that a sink has not committed yet, by connector, where that is known.
    """
    return generate_latest(registry_of(lambda: families(views, lag or {})))


def registry_of(collect: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """A registry that calls `collect` at each scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(collect))
    return registry


class _Collector(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        return ()


def families(views: Sequence[WorkerView], lag: LAG) -> Iterator[Metric]:
    table = _Table()
    for view in views:
        _worker(table, view)
        counts = Counter((task.task.connector, task.state) for task in view.tasks)
        for connector, state in view.connectors.items():
            _connector(table, view, connector, state, counts)
        for task in view.tasks:
            _task(table, view, task)
    for connector, records in sorted(lag.items()):
        labels = {"connector": connector}
        table.gauge("headgate_sink_lag_records", "Records not committed yet.", labels, records)
    yield from table.families()


def _worker(table: _Table, view: WorkerView) -> None:
    own = {"worker": view.worker_id}
    leads = bool(view.member_id) and view.leader == view.member_id
    table.gauge("headgate_worker_leader", "1: this worker leads the group.", own, leads)
    table.gauge("headgate_worker_settled", "1: no change is under way.", own, view.settled)
    table.gauge("headgate_worker_generation", "Generation of the group.", own, view.generation)
    table.gauge("headgate_worker_config_offset", "Config offset read.", own, view.config_offset)
    text = "Rebalances that were completed."
    table.counter("headgate_worker_rebalances", text, own, view.rebalances)
    text = "Rounds of fencing, by the leader, that have shut producers out."
    table.counter("headgate_worker_fencing_rounds", text, own, view.fencing_rounds)
    text = "Rounds of fencing that have failed."
    table.counter("headgate_worker_failed_fencing_rounds", text, own, view.failed_fencing_rounds)
    text = "Rebalances that were completed."
    worker = "kafka_connect_worker"
    table.gauge(f"{worker}_connector_count", "Connectors run.", own, len(view.connectors))
    table.gauge(f"{worker}_task_count", "Tasks run.", own, len(view.tasks))
    table.counter(f"{worker}_rebalance_completed_rebalances", text, own, view.rebalances)
    coordinator = "kafka_connect_coordinator_assigned"
    table.gauge(f"{coordinator}_connectors", "Connectors assigned.", own, len(view.connectors))
    table.gauge(f"{coordinator}_tasks", "Tasks assigned.", own, len(view.tasks))
    if view.loop is not None:
        _loop(table, view.loop, own)


def _loop(table: _Table, loop: LoopBusy, own: Mapping[str, str]) -> None:
    name = "headgate_worker_loop"
    text = "Commands that the herder has decided on."
    table.counter(f"{name}_commands", text, own, loop.commands)
    table.counter(f"{name}_seconds", "Seconds that the herder took for them.", own, loop.seconds)
    text = "Seconds that the longest of the last one or two minutes took."
    table.gauge(f"{name}_longest_seconds", text, own, loop.longest_s)


def _connector(
    table: _Table,
    view: WorkerView,
    name: str,
    state: State,
    counts: Mapping[tuple[str, State], int],
) -> None:
    labels = {"worker": view.worker_id, "connector": name}
    _one_hot(table, "headgate_connector_state", labels, state)
    shown = {**labels, "status": state.value.lower()}
    table.gauge("kafka_connect_connector_status", "1: the connector's state.", shown, 1)
    for counted in _TASK_COUNTS:
        count = counts.get((name, counted), 0)
        key = f"kafka_connect_worker_connector_{counted.value.lower()}_task_count"
        table.gauge(key, "Tasks in this state here.", labels, count)


def _task(table: _Table, view: WorkerView, task: TaskView) -> None:
    labels = {
        "worker": view.worker_id,
        "connector": task.task.connector,
        "task": str(task.task.task),
    }
    _one_hot(table, "headgate_task_state", labels, task.state)
    shown = {**labels, "status": task.state.value.lower()}
    table.gauge("kafka_connect_connector_task_status", "1: the task's state.", shown, 1)
    table.counter("headgate_task_records", "Records moved by this run.", labels, task.records)
    skipped = "Records that could not be used."
    table.counter("headgate_task_skipped_records", skipped, labels, task.skipped)
    table.gauge("kafka_connect_task_error_total_records_skipped", skipped, labels, task.skipped)
    table.gauge("headgate_task_idle", "1: nothing to do at the moment.", labels, task.idle)
    text = "Starts after the task was fenced or lost."
    table.counter("headgate_task_attempts", text, labels, task.attempts)
    text = "Restarts in a row by the restart policy."
    table.gauge("headgate_task_restarts_in_a_row", text, labels, task.restarts)
    text = "Seconds since records were moved or the run began."
    if (quiet_ms := view.quiet_ms(task)) is not None:
        table.gauge("headgate_task_quiet_seconds", text, labels, quiet_ms / 1000)
    text = "Commits of this run that had records."
    table.counter("headgate_task_commits", text, labels, task.commits)
    if (took_ms := view.call_ms(task)) is not None:
        text = "Seconds that a method of the connector has not returned for."
        table.gauge(
            "headgate_task_call_seconds", text, {**labels, "method": task.call}, took_ms / 1000
        )
    if task.batch is not None:
        _batch(table, task.batch, labels)
    if task.measured is not None:
        _measured(table, task.measured, labels)


def _batch(table: _Table, batch: BatchDone, labels: Mapping[str, str]) -> None:
    text = "Batches that this run has committed."
    table.counter("headgate_task_batches", text, labels, batch.number)
    last = "headgate_task_last_batch"
    table.gauge(f"{last}_records", "Records of the last batch.", labels, batch.records)
    table.gauge(f"{last}_files", "Files of the last batch.", labels, batch.files)
    text = "Seconds from the begin of the last batch to its commit."
    table.gauge(f"{last}_seconds", text, labels, batch.took_ms / 1000)


def _measured(table: _Table, measured: Measured, labels: Mapping[str, str]) -> None:
    text = "Bytes of keys and values that this run has sent and committed, or was given."
    table.counter("headgate_task_bytes", text, labels, measured.data_bytes)
    text = "Seconds that this run has waited for its commits."
    commits, took_ms = measured.commits, measured.commit_ms
    table.summary("headgate_task_commit_seconds", text, labels, commits, took_ms / 1000)
    if commits:
        name = "kafka_connect_connector_task_offset_commit_avg_time_ms"
        text = "Milliseconds that a commit of this run took on average."
        table.gauge(name, text, labels, took_ms / commits)
    if measured.lag is not None:
        text = "Records of the task's partitions that no commit covers."
        table.gauge("headgate_task_lag_records", text, labels, measured.lag)


def _one_hot(table: _Table, name: str, labels: Mapping[str, str], state: State) -> None:
    for each in _STATES:
        shown = {**labels, "state": each.value}
        table.gauge(name, "1 for the present state, 0 for all others.", shown, each is state)
