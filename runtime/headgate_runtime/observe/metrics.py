"""Metrics of a worker, or of all workers of ``headgate up``, for Prometheus.

Our own names (``headgate_…``) are here. `connect_names` adds those that Kafka Connect's dashboards
chart. Values are what each worker reports at the moment of the scrape. docs/run/metrics.md has the
tables.
"""

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headgate.herder.messages import LoopBusy, Rebalances, Startups, TaskView, WorkerView
from headgate.ids import State
from headgate.task.messages import BatchDone, CallFigures, ErrorFigures, Measured
from headgate_runtime.observe import connect_names
from headgate_runtime.observe.families import Families, Labels, Table, TextFamilies

LAG: TypeAlias = Mapping[str, int]
_STATES = tuple(State)


def metrics(views: Sequence[WorkerView], lag: LAG | None = None, *, connect: bool = True) -> bytes:
    """Return the text of one scrape.

    Args:
        views: the workers' reports.
        lag: records that a sink has not committed yet, by connector, if known.
        connect: whether to include Connect's names.
    """
    table = TextFamilies()
    _fill(table, views, lag or {}, connect=connect)
    process = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=process)
    return table.text() + generate_latest(process)


def registry_of(collect: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """Return a registry that calls `collect` at each scrape, and has figures of this process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(collect))
    ProcessCollector(registry=registry)
    return registry


class _Collector(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        return ()


@cache
def _version() -> str:
    return importlib.metadata.version("headgate")


def families(views: Sequence[WorkerView], lag: LAG) -> Iterator[Metric]:
    """Yield the same metrics as objects, without those of this process."""
    table = Families()
    _fill(table, views, lag, connect=True)
    yield from table.found()


def _fill(table: Table, views: Sequence[WorkerView], lag: LAG, *, connect: bool) -> None:
    table.gauge("headgate_info", "1, with the version.", Labels({"version": _version()}), 1)
    for view in views:
        own = Labels({"worker": view.worker_id})
        _worker(table, view, own)
        for connector, state in view.connectors.items():
            _one_hot(table, "headgate_connector_state", own.plus("connector", connector), state)
        for call in view.connector_calls:
            text = "Seconds that a method of the connector itself has not returned for."
            labels = own.plus("connector", call.connector).plus("method", call.method)
            table.gauge("headgate_connector_call_seconds", text, labels, call.took_ms / 1000)
        tasks = [(_labels(own, task), task) for task in view.tasks]
        for labels, task in tasks:
            _task(table, view, task, labels)
        if connect:
            connect_names.add_worker(table, view)
            for labels, task in tasks:
                connect_names.add_task(table, labels, task)
    for connector, records in sorted(lag.items()):
        labels = Labels({"connector": connector})
        table.gauge("headgate_sink_lag_records", "Records not committed yet.", labels, records)


def _worker(table: Table, view: WorkerView, own: Labels) -> None:
    leads = bool(view.member_id) and view.leader == view.member_id
    table.gauge("headgate_worker_leader", "1: this worker leads the group.", own, leads)
    table.gauge("headgate_worker_settled", "1: no change is under way.", own, view.settled)
    table.gauge("headgate_worker_generation", "Generation of the group.", own, view.generation)
    table.gauge("headgate_worker_config_offset", "Config offset read.", own, view.config_offset)
    text = "Rebalances that were completed."
    table.counter("headgate_worker_rebalances", text, own, view.rebalances)
    _rebalances(table, view.rebalance_times, view.now_ms, own)
    _startups(table, view.startups, own)
    text = "Rounds of fencing, by the leader, that have shut producers out."
    table.counter("headgate_worker_fencing_rounds", text, own, view.fencing_rounds)
    text = "Rounds of fencing that have failed."
    table.counter("headgate_worker_failed_fencing_rounds", text, own, view.failed_fencing_rounds)
    if view.loop is not None:
        _loop(table, view.loop, own)


def _rebalances(table: Table, times: Rebalances, now_ms: int, own: Labels) -> None:
    name = "headgate_worker_rebalance"
    text = "Seconds from the begin of a rebalance until work may run again."
    table.summary(f"{name}_seconds", text, own, times.count, times.took_ms / 1000)
    text = "Seconds that the longest rebalance of the last one or two minutes took."
    table.gauge(f"{name}_longest_seconds", text, own, times.took_ms_max / 1000)
    text = "1: a rebalance is under way."
    table.gauge("headgate_worker_rebalancing", text, own, times.began_ms is not None)
    if times.ended_ms is not None:
        text = "Seconds since the last rebalance was over."
        since_s = max(now_ms - times.ended_ms, 0) / 1000
        table.gauge("headgate_worker_since_rebalance_seconds", text, own, since_s)


def _startups(table: Table, starts: Startups, own: Labels) -> None:
    head = "headgate_worker"
    for what, done, failed in (
        ("connector", starts.connectors, starts.failed_connectors),
        ("task", starts.tasks, starts.failed_tasks),
    ):
        table.counter(f"{head}_{what}_starts", "Starts that succeeded.", own, done)
        table.counter(f"{head}_failed_{what}_starts", "Starts that failed.", own, failed)


def _loop(table: Table, loop: LoopBusy, own: Labels) -> None:
    name = "headgate_worker_loop"
    text = "Commands that the herder has decided on."
    table.counter(f"{name}_commands", text, own, loop.commands)
    table.counter(f"{name}_seconds", "Seconds that the herder took for them.", own, loop.seconds)
    text = "Seconds that the longest of the last one or two minutes took."
    table.gauge(f"{name}_longest_seconds", text, own, loop.longest_s)


def _task(table: Table, view: WorkerView, task: TaskView, labels: Labels) -> None:
    _one_hot(table, "headgate_task_state", labels, task.state)
    table.counter("headgate_task_records", "Records moved by this run.", labels, task.records)
    skipped = "Records that could not be used."
    table.counter("headgate_task_skipped_records", skipped, labels, task.skipped)
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
        of_call = labels.plus("method", task.call)
        table.gauge("headgate_task_call_seconds", text, of_call, took_ms / 1000)
    if task.batch is not None:
        _batch(table, task.batch, labels)
    if task.measured is not None:
        _measured(table, task.measured, labels)


def _labels(own: Labels, task: TaskView) -> Labels:
    name = task.task
    return own.plus("connector", name.connector).plus("task", str(name.task))


def _batch(table: Table, batch: BatchDone, labels: Labels) -> None:
    text = "Batches that this run has committed."
    table.counter("headgate_task_batches", text, labels, batch.number)
    last = "headgate_task_last_batch"
    table.gauge(f"{last}_records", "Records of the last batch.", labels, batch.records)
    table.gauge(f"{last}_files", "Files of the last batch.", labels, batch.files)
    text = "Seconds from the begin of the last batch to its commit."
    table.gauge(f"{last}_seconds", text, labels, batch.took_ms / 1000)


def _measured(table: Table, measured: Measured, labels: Labels) -> None:
    if not measured.elsewhere:
        text = "Bytes of keys and values that this run has sent and committed, or was given."
        table.counter("headgate_task_bytes", text, labels, measured.data_bytes)
        text = "Seconds that this run has waited for its commits."
        took_s = measured.commit_ms / 1000
        table.summary("headgate_task_commit_seconds", text, labels, measured.commits, took_s)
        text = "Commits of this run that were given up, to be tried again later."
        table.counter("headgate_task_failed_commits", text, labels, measured.failed_commits)
    if measured.lag is not None:
        text = "Records of the task's partitions that no commit covers."
        table.gauge("headgate_task_lag_records", text, labels, measured.lag)
    if measured.read is not None:
        text = "Records that this run has read from topics."
        table.counter("headgate_task_read_records", text, labels, measured.read)
    if measured.partitions is not None:
        table.gauge("headgate_task_partitions", "Partitions held.", labels, measured.partitions)
    if measured.batches is not None:
        _calls(table, measured.batches, labels)
    if measured.errors is not None:
        _errors(table, measured.errors, labels)


def _calls(table: Table, calls: CallFigures, labels: Labels) -> None:
    name, text = "headgate_task_call_records", "Records of calls that gave or took some."
    table.summary(name, text, labels, calls.calls, calls.records)
    text = "Most records of a call in the last one or two minutes."
    table.gauge(f"{name}_max", text, labels, calls.records_max)
    labels = labels.plus("method", calls.method)
    name, text = (
        "headgate_task_call_duration_seconds",
        "Seconds of calls that gave or took records.",
    )
    table.summary(name, text, labels, calls.calls, calls.took_us / 1e6)
    text = "Seconds of the longest call in the last one or two minutes."
    table.gauge(f"{name}_max", text, labels, calls.took_us_max / 1e6)


def _errors(table: Table, errors: ErrorFigures, labels: Labels) -> None:
    head = "headgate_task"
    text = "Attempts at a record that failed."
    table.counter(f"{head}_record_failures", text, labels, errors.failures)
    text = "Records that were given up."
    table.counter(f"{head}_record_errors", text, labels, errors.errors)
    text = "Attempts that were followed by another."
    table.counter(f"{head}_record_retries", text, labels, errors.retries)
    text = "Errors that errors.log.enable has logged."
    table.counter(f"{head}_logged_errors", text, labels, errors.logged)
    text = "Dead letters that were given to the log's client."
    table.counter(f"{head}_dead_letters", text, labels, errors.letters)
    text = "Dead letters that the log has refused."
    table.counter(f"{head}_refused_dead_letters", text, labels, errors.refused_letters)
    if errors.last_ms is not None:
        text = "When the last attempt failed, in seconds since 1970."
        name = f"{head}_last_error_timestamp_seconds"
        table.gauge(name, text, labels, errors.last_ms / 1000)


def _one_hot(table: Table, name: str, labels: Labels, state: State) -> None:
    for each in _STATES:
        shown = labels.plus("state", each.value)
        table.gauge(name, "1 for the present state, 0 for all others.", shown, each is state)
