"""A worker serves what the tables of docs/run/metrics.md list."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.kafka.worker_file import WORKER_FILE

from headgate import wire
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
from headgate_runtime.command import worker
from headgate_runtime.config.properties import parse_properties
from headgate_runtime.config.settings import DISTRIBUTED
from headgate_runtime.config.worker_file import check_worker_file
from headgate_runtime.observe.metrics import metrics

PAGE = Path(__file__).resolve().parents[3] / "docs/run/metrics.md"
CHARTED = {
    "connect-worker-metrics": (
        "connector-count task-count connector-startup-success-total "
        "connector-startup-failure-total task-startup-success-total task-startup-failure-total "
        "connector-running-task-count connector-paused-task-count connector-failed-task-count "
        "connector-unassigned-task-count connector-destroyed-task-count connector-total-task-count"
    ),
    "connect-worker-rebalance-metrics": (
        "rebalancing completed-rebalances-total rebalance-avg-time-ms time-since-last-rebalance-ms"
    ),
    "connect-coordinator-metrics": "assigned-connectors assigned-tasks",
    "connector-metrics": "status connector-class connector-type connector-version",
    "connector-task-metrics": (
        "status batch-size-avg batch-size-max offset-commit-avg-time-ms "
        "offset-commit-success-percentage pause-ratio running-ratio"
    ),
    "source-task-metrics": (
        "source-record-poll-rate source-record-write-rate source-record-active-count-avg "
        "source-record-active-count-max poll-batch-avg-time-ms poll-batch-max-time-ms"
    ),
    "sink-task-metrics": (
        "sink-record-read-rate sink-record-send-rate sink-record-active-count-avg "
        "sink-record-active-count-max put-batch-avg-time-ms put-batch-max-time-ms partition-count "
        "offset-commit-completion-rate offset-commit-skip-rate"
    ),
    "task-error-metrics": (
        "total-record-errors total-record-failures total-records-skipped total-retries "
        "total-errors-logged deadletterqueue-produce-requests deadletterqueue-produce-failures"
    ),
    "app-info": "version commit-id start-time-ms",
    "connect-metrics": (
        "connection-count incoming-byte-rate outgoing-byte-rate io-ratio network-io-rate "
        "request-rate response-rate successful-authentication-rate failed-authentication-total"
    ),
}
"""What the dashboards of Strimzi and Confluent chart, by MBean."""
OURS = re.compile(r"\b(?:headgate|process)_\w+")


def view() -> WorkerView:
    """A worker that has something to tell of everything."""
    errors = ErrorFigures(6, 5, 4, 3, 2, 1, 1_000)
    source = Measured(1, 1, 1, 1, CallFigures("poll", 1, 1, 1, 1, 1), errors)
    more = {"read": 1, "partitions": 1}
    sink = dataclasses.replace(source, batches=CallFigures("put", 1, 1, 1, 1, 1), **more)
    task = TaskView(TaskId("c", 0), State.RUNNING, 1, 2, False, 1, "", 3, None, 1)
    told: dict[str, Any] = {"call": "poll", "call_since_ms": 0, "batch": BatchDone(3, 1, 1, 1, 1)}
    return WorkerView(
        *("w:1", "http://w:1/", "m", "m", 7, 42, True, ()),
        connectors={"c": State.RUNNING},
        tasks=tuple(dataclasses.replace(task, measured=each, **told) for each in (source, sink)),
        rebalances=5,
        loop=LoopBusy(1, 1, 1),
        rebalance_times=Rebalances(1, 10, 10, 1, None),
        startups=Startups(1, 1, 1, 1),
        connector_calls=(ConnectorCall("c", "start", 1_000),),
    )


def served() -> set[str]:
    """Names of all samples of that worker, and of the lag that `headgate up` knows."""
    return names_of(metrics([view()], {"sink": 1}))


def names_of(text: bytes) -> set[str]:
    families = text_string_to_metric_families(text.decode())
    return {sample.name for family in families for sample in family.samples}


def rows(heading: str) -> Iterator[Sequence[str]]:
    """Cells of the table under a heading, without its first two lines."""
    _, _, section = PAGE.read_text().partition(f"\n## {heading}\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def names_in(text: str) -> list[str]:
    return [name.partition("{")[0] for name in re.findall(r"`([^`]+)`", text)]


def test_the_names_are_all_of_ours_and_no_others() -> None:
    """``also `_files` `` stands for the name before it with another ending."""
    told: set[str] = set()
    for names, _meaning in rows("Names"):
        whole = ""
        for name in names_in(names):
            whole = whole.rpartition("_")[0] + name if name.startswith("_") else name
            told.add(whole)
    assert told == {name for name in served() if not name.startswith("kafka_")}


def test_names_of_dashboards_are_served_as_they_are_written() -> None:
    plain, bracketed = set[str](), set[str]()
    for _attribute, *spellings, _ours in rows("Dashboards of Kafka Connect"):
        for cell in spellings:
            plain.update(names_in(re.sub(r"\(.*\)", "", cell)))
            bracketed.update(names_in(" ".join(re.findall(r"\(.*\)", cell))))
    theirs = {name for name in served() if name.startswith("kafka_")}
    assert plain == theirs
    assert not bracketed - {"kafka_connect_connector_metrics"} & theirs


def test_what_is_to_be_charted_of_ours_is_served() -> None:
    found = served()
    for attribute, _strimzi, _confluent, ours in rows("Dashboards of Kafka Connect"):
        if attribute.startswith("**"):
            continue
        names = OURS.findall(ours)
        assert names or ours.startswith(("None: ", "As `")), attribute
        assert set(names) <= found, attribute


@pytest.mark.parametrize("bean", CHARTED)
def test_each_attribute_that_dashboards_chart_has_a_row(bean: str) -> None:
    told: dict[str, list[str]] = {}
    under = ""
    for attribute, *_ in rows("Dashboards of Kafka Connect"):
        if attribute.startswith("**"):
            under = attribute.strip("*").partition("`")[2].partition("`")[0]
        else:
            told.setdefault(under, []).extend(names_in(attribute))
    assert sorted(told[bean]) == sorted(CHARTED[bean].split())


@pytest.mark.parametrize("told", ["true", "false"])
def test_a_setting_leaves_out_the_names_of_dashboards(told: str) -> None:
    lines = f"{WORKER_FILE}headgate.metrics.connect.names={told}\n"
    settings = check_worker_file(parse_properties(lines, "f"), DISTRIBUTED).settings
    make = worker._metrics(settings)
    assert make is not None
    names = names_of(make(wire.plain(view())))
    theirs = {name for name in names if name.startswith("kafka_")}
    assert names - theirs == {name for name in served() if not name.startswith("kafka_")} - {
        "headgate_sink_lag_records"
    }
    assert bool(theirs) is (told == "true")
