"""The figures of workers and tasks under the names that common Kafka Connect dashboards chart.

Connect's JMX attributes have two spellings: that of Strimzi's rules (``kafka_connect_worker_…``),
and that of Confluent's (``kafka_connect_connect_worker_metrics_…``). Only figures that a dashboard
charts are shown, each in that dashboard's spelling. Rates are left out: Prometheus computes them
from the counters. docs/run/metrics.md has the table.
"""

from collections import Counter
from typing import Final

from headgate.herder.messages import TaskView, WorkerView
from headgate.ids import State
from headgate.task.messages import CallFigures, ErrorFigures, Measured
from headgate_runtime.observe.families import Labels, Table

_TASK_COUNTS: Final = (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED)
_STRIMZI: Final = "kafka_connect_worker"
_CONFLUENT: Final = "kafka_connect_connect_worker_metrics"
_ROUNDS: Final = "kafka_connect_connect_worker_rebalance_metrics"
_BATCH: Final = {"poll": "kafka_connect_source_task_metrics_poll_batch"}
_PUT_BATCH: Final = "kafka_connect_sink_task_metrics_put_batch"
_ERRORS: Final = (
    ("total_record_errors", "Records that were given up."),
    ("total_record_failures", "Attempts at a record that failed."),
    ("total_retries", "Attempts that were followed by another."),
    ("total_errors_logged", "Errors that were logged."),
    ("deadletterqueue_produce_requests", "Dead letters given to the client."),
    ("deadletterqueue_produce_failures", "Dead letters that the log refused."),
)


def add_worker(table: Table, view: WorkerView) -> None:
    own = Labels({"worker": view.worker_id})
    whole = own.plus("connector", "aggregate")
    connectors, tasks = len(view.connectors), len(view.tasks)
    for name, labels in ((_STRIMZI, own), (_CONFLUENT, whole)):
        table.gauge(f"{name}_connector_count", "Connectors run.", labels, connectors)
        table.gauge(f"{name}_task_count", "Tasks run.", labels, tasks)
    for coordinator in ("kafka_connect_coordinator", "kafka_connect_connect_coordinator_metrics"):
        name = f"{coordinator}_assigned"
        table.gauge(f"{name}_connectors", "Connectors assigned.", own, connectors)
        table.gauge(f"{name}_tasks", "Tasks assigned.", own, tasks)
    starts = view.startups
    for name, done, failed in (
        ("connector", starts.connectors, starts.failed_connectors),
        ("task", starts.tasks, starts.failed_tasks),
    ):
        head = f"{_CONFLUENT}_{name}_startup"
        table.counter(f"{head}_success", "Starts that succeeded.", whole, done)
        table.counter(f"{head}_failure", "Starts that failed.", whole, failed)
    _rounds(table, view, own)
    counts = Counter((task.task.connector, task.state) for task in view.tasks)
    totals = Counter(task.task.connector for task in view.tasks)
    for connector, state in view.connectors.items():
        labels = own.plus("connector", connector)
        shown = labels.plus("status", state.value.lower())
        for name in ("kafka_connect_connector_status", "kafka_connect_connector_metrics"):
            table.gauge(name, "1: the connector's state.", shown, 1)
        for counted in _TASK_COUNTS:
            count = counts.get((connector, counted), 0)
            for name in (_STRIMZI, _CONFLUENT):
                key = f"{name}_connector_{counted.value.lower()}_task_count"
                table.gauge(key, "Tasks in this state here.", labels, count)
        key = f"{_CONFLUENT}_connector_total_task_count"
        table.gauge(key, "Tasks here.", labels, totals.get(connector, 0))


def _rounds(table: Table, view: WorkerView, own: Labels) -> None:
    times = view.rebalance_times
    rebalancing = times.began_ms is not None
    for name in ("kafka_connect_worker_rebalance", _ROUNDS):
        text = "Rebalances that were completed."
        table.counter(f"{name}_completed_rebalances", text, own, view.rebalances)
        table.gauge(f"{name}_rebalancing", "1: one is under way.", own, rebalancing)
    if times.count:
        text = "Milliseconds that a rebalance took on average."
        table.gauge(f"{_ROUNDS}_rebalance_avg_time_ms", text, own, times.took_ms / times.count)
    if times.ended_ms is not None:
        since_ms = max(view.now_ms - times.ended_ms, 0)
        text = "Milliseconds since the last one was over."
        table.gauge(f"{_ROUNDS}_time_since_last_rebalance_ms", text, own, since_ms)


def add_task(table: Table, labels: Labels, task: TaskView) -> None:
    shown = labels.plus("status", task.state.value.lower())
    table.gauge("kafka_connect_connector_task_status", "1: the task's state.", shown, 1)
    text = "Records that could not be used."
    for name in ("kafka_connect_task_error", "kafka_connect_task_error_metrics"):
        table.gauge(f"{name}_total_records_skipped", text, labels, task.skipped)
    if task.measured is not None:
        _measured(table, labels, task.measured)


def _measured(table: Table, labels: Labels, measured: Measured) -> None:
    if measured.commits:
        text = "Milliseconds that a commit of this run took on average."
        for head in ("kafka_connect_connector_task", "kafka_connect_connector_task_metrics"):
            name = f"{head}_offset_commit_avg_time_ms"
            table.gauge(name, text, labels, measured.commit_ms / measured.commits)
    if measured.partitions is not None:
        name = "kafka_connect_sink_task_metrics_partition_count"
        table.gauge(name, "Partitions held.", labels, measured.partitions)
    if measured.batches is not None:
        _batches(table, labels, measured.batches)
    if measured.errors is not None:
        _errors(table, labels, measured.errors)


def _batches(table: Table, labels: Labels, batches: CallFigures) -> None:
    if not batches.calls:
        return
    size = "kafka_connect_connector_task_metrics_batch_size"
    table.gauge(f"{size}_avg", "Records of a batch.", labels, batches.records / batches.calls)
    table.gauge(f"{size}_max", "Most records of a batch lately.", labels, batches.records_max)
    name, text = _BATCH.get(batches.method, _PUT_BATCH), "Milliseconds of a call with records."
    table.gauge(f"{name}_avg_time_ms", text, labels, batches.took_us / batches.calls / 1000)
    text = "Milliseconds of the longest call lately."
    table.gauge(f"{name}_max_time_ms", text, labels, batches.took_us_max / 1000)


def _errors(table: Table, labels: Labels, errors: ErrorFigures) -> None:
    counts = (errors.errors, errors.failures, errors.retries, errors.logged)
    letters = (errors.letters, errors.refused_letters)
    for (name, text), count in zip(_ERRORS, (*counts, *letters), strict=True):
        table.gauge(f"kafka_connect_task_error_metrics_{name}", text, labels, count)
    name = "kafka_connect_task_error_total_record_failures"
    table.gauge(name, "Attempts at a record that failed.", labels, errors.failures)
