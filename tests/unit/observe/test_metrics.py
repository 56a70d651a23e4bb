"""A worker's view becomes metrics, which Prometheus' own parser reads."""

import dataclasses
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from headgate.herder.messages import (
    ConnectorCall,
    LoopBusy,
    Rebalances,
    Startups,
    TaskView,
    WorkerView,
)
from headgate.ids import State, TaskId
from headgate.task.messages import BatchDone, CallFigures, ErrorFigures, Measured
from headgate_runtime.observe.metrics import families, metrics
from headgate_runtime.worker.loop_time import LoopTime


def task(name: str, number: int, state: State, records: int = 0) -> TaskView:
    return TaskView(TaskId(name, number), state, records, 2, False, 1, "", 3, None, 1_500)


VIEW = WorkerView(
    worker_id="w:1",
    url="http://w:1/",
    member_id="m",
    leader="m",
    generation=7,
    config_offset=42,
    settled=True,
    pending=(),
    connectors={"lines": State.RUNNING, 'o"dd\\\n': State.FAILED},
    tasks=(task("lines", 0, State.RUNNING, 1_000), task("lines", 1, State.FAILED)),
    rebalances=5,
    now_ms=3_000,
)


def samples(views: Iterable[WorkerView], lag: dict[str, int] | None = None) -> dict[str, float]:
    """Value by ``name{label=value,…}``, the worker's label left out."""
    text = metrics(list(views), lag).decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sample.labels.items() if k != "worker")
            name = f"{sample.name}{{{labels}}}"
            assert name not in found, name
            found[name] = sample.value
    return found


def test_states_are_one_hot_with_failed_and_unassigned_among_them() -> None:
    seen = samples([VIEW])
    states = {
        state: seen[f"headgate_task_state{{connector=lines,state={state},task=1}}"]
        for state in State
    }
    assert states == {state: float(state is State.FAILED) for state in State}
    assert seen["headgate_connector_state{connector=lines,state=RUNNING}"] == 1
    assert seen["headgate_connector_state{connector=lines,state=FAILED}"] == 0


def test_a_name_with_quotes_and_newlines_stays_one_label() -> None:
    assert samples([VIEW])['headgate_connector_state{connector=o"dd\\\n,state=FAILED}'] == 1


def test_the_text_is_what_prometheus_client_makes_of_the_same() -> None:
    """The wrong order of a label, or a number in other digits, would make other series."""
    figures = Measured(
        4,
        1_000,
        12_345_678_901,
        12,
        batches=CallFigures("poll", 4, 1_000, 700, 8_000, 5_000),
        errors=ErrorFigures(6, 5, 4, 3, 2, 1, 12_345),
    )
    whole = dataclasses.replace(
        VIEW.tasks[0],
        batch=BatchDone(3, 200_000, 2, 1_900, 1_000),
        measured=figures,
        call="poll",
        call_since_ms=0,
    )
    view = dataclasses.replace(
        VIEW,
        tasks=(*VIEW.tasks, dataclasses.replace(whole, task=TaskId('o"dd\\\n', 0))),
        connector_calls=(ConnectorCall("lines", "start", 31_000),),
        loop=LoopBusy(3, 0.1, 1e-9),
        rebalance_times=Rebalances(2, 3_000, 2_000, 1, 2_000),
    )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Objects([view, dataclasses.replace(VIEW, worker_id="w:2")]))
    text = metrics([view, dataclasses.replace(VIEW, worker_id="w:2")], {"sink": 12})
    assert b"headgate_task_call_seconds{" in text and b"1.2345678901e+10" in text
    made = generate_latest(registry)
    assert text[: len(made)] == made
    assert text[len(made) :].startswith(b"# HELP process_")


class Objects(Collector):
    """The metrics that `headgate up` gives to prometheus-client, without those of its process."""

    def __init__(self, views: Sequence[WorkerView]) -> None:
        self._views = views

    def collect(self) -> Iterable[Metric]:
        return families(self._views, {"sink": 12})


def test_half_of_a_surrogate_pair_in_a_name_does_not_break_the_page() -> None:
    text = metrics([dataclasses.replace(VIEW, connectors={"a\ud800": State.RUNNING})])
    assert b'headgate_connector_state{connector="a?",state="RUNNING"' in text


def test_counts_of_a_worker_and_of_its_tasks() -> None:
    seen = samples([VIEW], {"sink": 12})
    assert seen["headgate_worker_leader{}"] == 1
    assert seen["headgate_worker_generation{}"] == 7
    assert seen["headgate_worker_rebalances_total{}"] == 5
    assert seen["headgate_task_records_total{connector=lines,task=0}"] == 1_000
    assert seen["headgate_task_skipped_records_total{connector=lines,task=0}"] == 2
    assert seen["headgate_task_quiet_seconds{connector=lines,task=0}"] == 1.5
    assert seen["headgate_task_restarts_in_a_row{connector=lines,task=0}"] == 3
    assert seen["headgate_sink_lag_records{connector=sink}"] == 12


def test_batches_of_a_sink_that_plans_them() -> None:
    assert not [name for name in samples([VIEW]) if "task_batch" in name or "last_batch" in name]
    batch = BatchDone(3, 200_000, 2, 1_900, 1_000)
    seen = samples(
        [dataclasses.replace(VIEW, tasks=(dataclasses.replace(VIEW.tasks[0], batch=batch),))]
    )
    assert seen["headgate_task_batches_total{connector=lines,task=0}"] == 3
    last = "headgate_task_last_batch"
    assert seen[f"{last}_records{{connector=lines,task=0}}"] == 200_000
    assert seen[f"{last}_files{{connector=lines,task=0}}"] == 2
    assert seen[f"{last}_seconds{{connector=lines,task=0}}"] == 1.9


def test_what_a_body_has_measured() -> None:
    names = ("task_bytes", "commit_seconds", "lag", "offset_commit")
    assert not [name for name in samples([VIEW]) if any(each in name for each in names)]
    none_yet = dataclasses.replace(VIEW.tasks[0], measured=Measured(0, 0, 0))
    seen = samples([dataclasses.replace(VIEW, tasks=(none_yet,))])
    assert seen["headgate_task_bytes_total{connector=lines,task=0}"] == 0
    assert seen["headgate_task_commit_seconds_count{connector=lines,task=0}"] == 0
    assert not [name for name in seen if "offset_commit" in name or "lag" in name]
    moved = dataclasses.replace(VIEW.tasks[0], measured=Measured(4, 1_000, 5_000, 12))
    seen = samples([dataclasses.replace(VIEW, tasks=(moved,))])
    assert seen["headgate_task_bytes_total{connector=lines,task=0}"] == 5_000
    assert seen["headgate_task_commit_seconds_count{connector=lines,task=0}"] == 4
    assert seen["headgate_task_commit_seconds_sum{connector=lines,task=0}"] == 1
    average = "kafka_connect_connector_task_offset_commit_avg_time_ms"
    assert seen[f"{average}{{connector=lines,task=0}}"] == 250
    assert seen["headgate_task_lag_records{connector=lines,task=0}"] == 12


def of_task(measured: Measured) -> dict[str, float]:
    task = dataclasses.replace(VIEW.tasks[0], measured=measured)
    found = samples([dataclasses.replace(VIEW, tasks=(task,))])
    own = ",task=0}"
    return {
        name.replace("connector=lines", ""): value for name, value in found.items() if own in name
    }


def test_sizes_and_times_of_batches() -> None:
    calls = CallFigures("poll", 4, 1_000, 700, 8_000, 5_000)
    seen = of_task(Measured(0, 0, 0, batches=calls))
    assert seen["headgate_task_call_records_count{,task=0}"] == 4
    assert seen["headgate_task_call_records_sum{,task=0}"] == 1_000
    assert seen["headgate_task_call_records_max{,task=0}"] == 700
    assert seen["headgate_task_call_duration_seconds_count{,method=poll,task=0}"] == 4
    assert seen["headgate_task_call_duration_seconds_sum{,method=poll,task=0}"] == 0.008
    assert seen["headgate_task_call_duration_seconds_max{,method=poll,task=0}"] == 0.005
    assert seen["kafka_connect_connector_task_metrics_batch_size_avg{,task=0}"] == 250
    assert seen["kafka_connect_source_task_metrics_poll_batch_avg_time_ms{,task=0}"] == 2
    assert seen["kafka_connect_source_task_metrics_poll_batch_max_time_ms{,task=0}"] == 5
    put = of_task(Measured(0, 0, 0, batches=dataclasses.replace(calls, method="put")))
    assert put["kafka_connect_sink_task_metrics_put_batch_max_time_ms{,task=0}"] == 5
    none = of_task(Measured(0, 0, 0, batches=CallFigures("put", 0, 0, 0, 0, 0)))
    assert none["headgate_task_call_records_count{,task=0}"] == 0
    assert not [name for name in none if "batch_size" in name or "put_batch" in name]


def test_errors_of_records() -> None:
    seen = of_task(Measured(0, 0, 0, errors=ErrorFigures(6, 5, 4, 3, 2, 1, 12_345)))
    for name, count in {
        "record_failures": 6,
        "record_errors": 5,
        "record_retries": 4,
        "logged_errors": 3,
        "dead_letters": 2,
        "refused_dead_letters": 1,
    }.items():
        assert seen[f"headgate_task_{name}_total{{,task=0}}"] == count
    assert seen["headgate_task_last_error_timestamp_seconds{,task=0}"] == 12.345
    head = "kafka_connect_task_error_metrics"
    assert seen[f"{head}_total_record_failures{{,task=0}}"] == 6
    assert seen[f"{head}_total_retries{{,task=0}}"] == 4
    assert seen[f"{head}_deadletterqueue_produce_failures{{,task=0}}"] == 1
    none = of_task(Measured(0, 0, 0, errors=ErrorFigures()))
    assert not [name for name in none if "timestamp" in name]


def test_what_is_read_and_committed_elsewhere_is_not_told() -> None:
    seen = of_task(
        Measured(0, 0, 0, batches=CallFigures("run_batch", 1, 1, 1, 1, 1), elsewhere=True)
    )
    assert "headgate_task_call_duration_seconds_sum{,method=run_batch,task=0}" in seen
    assert not [name for name in seen if "task_bytes" in name or "commit_seconds" in name]


def test_rebalances_and_starts() -> None:
    times, starts = Rebalances(4, 2_000, 900, 1_000), Startups(1, 2, 3, 4)
    seen = samples([dataclasses.replace(VIEW, rebalance_times=times, startups=starts)])
    assert seen["headgate_worker_rebalance_seconds_count{}"] == 4
    assert seen["headgate_worker_rebalance_seconds_sum{}"] == 2
    assert seen["headgate_worker_rebalance_longest_seconds{}"] == 0.9
    assert seen["headgate_worker_since_rebalance_seconds{}"] == 2
    assert seen["headgate_worker_rebalancing{}"] == 0
    rounds = "kafka_connect_connect_worker_rebalance_metrics"
    assert seen[f"{rounds}_rebalance_avg_time_ms{{}}"] == 500
    assert seen[f"{rounds}_time_since_last_rebalance_ms{{}}"] == 2_000
    assert seen["headgate_worker_connector_starts_total{}"] == 1
    assert seen["headgate_worker_failed_connector_starts_total{}"] == 2
    assert seen["headgate_worker_task_starts_total{}"] == 3
    assert seen["headgate_worker_failed_task_starts_total{}"] == 4
    head = "kafka_connect_connect_worker_metrics"
    assert seen[f"{head}_task_startup_failure_total{{connector=aggregate}}"] == 4
    under_way = dataclasses.replace(VIEW, rebalance_times=Rebalances(began_ms=5))
    assert samples([under_way])["headgate_worker_rebalancing{}"] == 1
    assert not [name for name in samples([VIEW]) if "since_" in name or "avg" in name]


def test_a_call_that_has_not_returned() -> None:
    assert not [name for name in samples([VIEW]) if "call" in name]
    hangs = dataclasses.replace(VIEW.tasks[0], call="poll", call_since_ms=1_000)
    seen = samples([dataclasses.replace(VIEW, tasks=(hangs,))])
    assert seen["headgate_task_call_seconds{connector=lines,method=poll,task=0}"] == 2
    assert seen["headgate_task_state{connector=lines,state=RUNNING,task=0}"] == 1


def test_time_that_the_herder_is_busy() -> None:
    time = LoopTime()
    for at_s in range(10):
        time.took(0.5, at_s)
    time.took(2.0, 9)
    seen = samples([dataclasses.replace(VIEW, loop=time.read(10))])
    assert seen["headgate_worker_loop_commands_total{}"] == 11
    assert seen["headgate_worker_loop_seconds_total{}"] == 7
    assert seen["headgate_worker_loop_longest_seconds{}"] == 2
    assert not [name for name in samples([VIEW]) if "loop" in name]


def test_the_longest_is_of_the_last_one_or_two_minutes() -> None:
    time = LoopTime()
    time.took(2.0, 60)
    time.took(0.5, 125)
    assert time.read(130).longest_s == 2.0
    time.took(0.25, 190)
    assert time.read(190).longest_s == 0.5
    assert time.read(1_000) == LoopBusy(3, 2.75, 0.0)


def test_rounds_of_fencing_and_commits_are_counted() -> None:
    moved = dataclasses.replace(VIEW.tasks[0], commits=4)
    seen = samples(
        [dataclasses.replace(VIEW, tasks=(moved,), fencing_rounds=2, failed_fencing_rounds=1)]
    )
    assert seen["headgate_task_commits_total{connector=lines,task=0}"] == 4
    assert seen["headgate_worker_fencing_rounds_total{}"] == 2
    assert seen["headgate_worker_failed_fencing_rounds_total{}"] == 1


def test_the_names_that_dashboards_of_kafka_connect_chart() -> None:
    seen = samples([VIEW])
    assert seen["kafka_connect_worker_task_count{}"] == 2
    assert seen["kafka_connect_worker_connector_failed_task_count{connector=lines}"] == 1
    assert seen["kafka_connect_worker_connector_running_task_count{connector=lines}"] == 1
    assert seen["kafka_connect_connector_status{connector=lines,status=running}"] == 1
    assert seen["kafka_connect_connector_task_status{connector=lines,status=failed,task=1}"] == 1
    assert seen["kafka_connect_coordinator_assigned_tasks{}"] == 2


def test_workers_are_told_apart() -> None:
    other = dataclasses.replace(VIEW, worker_id="w:2", leader="else")
    text = metrics([VIEW, other]).decode()
    assert 'headgate_worker_leader{worker="w:1"} 1.0' in text
    assert 'headgate_worker_leader{worker="w:2"} 0.0' in text
    assert text.count("# TYPE headgate_worker_leader gauge") == 1
