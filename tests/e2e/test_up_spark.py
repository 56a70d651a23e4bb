"""The Spark that the workers of `headgate up` share dies or freezes. Another one starts, and no
record is lost."""

import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up
from support.commands.processes import Process

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

RECORDS = 12_000
TIMEOUT_S = 8
PIPELINE = """
[cluster]
workers = 2
data = "state"
runner = "spark"
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
"scheduled.rebalance.max.delay.ms" = 500
"headgate.spark.driver.timeout.ms" = %d

[spark]
master = "local[2]"

[connectors.events]
"connector.class" = "DirectorySource"
path = "in"
topic = "events"
"tasks.max" = 2
"records.per.second" = 300

[connectors.lake]
"connector.class" = "SparkFileSink"
topics = "events"
path = "out"
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    (tmp_path / "pipeline.toml").write_text(PIPELINE % (TIMEOUT_S * 1000))
    (tmp_path / "in").mkdir()
    for number in range(4):
        lines = [
            json.dumps({"n": n}) for n in range(number * RECORDS // 4, (number + 1) * RECORDS // 4)
        ]
        (tmp_path / "in" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    started = Up(tmp_path, ("--until-idle", "--timeline", "t.svg")).start()
    yield started
    started.clean_up()


def test_a_spark_that_was_killed_is_started_again_and_the_tasks_come_back(up: Up) -> None:
    up.wait_for("records", lambda: up.records("events") > 1_000, 150)
    told = re.compile(r"batch \d+: ")  # a line every five seconds, so hardly the first batch
    up.wait_for("a batch", lambda: told.search(up.tail(100_000)) is not None, 60)
    pages = re.search(r"Spark is up at .*; its pages: (http://127\.0\.0\.1:\d+)", up.tail(100_000))
    assert pages is not None, up.tail()
    with urllib.request.urlopen(f"{pages[1]}/api/v1/applications", timeout=30) as answer:
        assert json.load(answer)[0]["name"] == "headgate"
    os.kill(driver(up).pid, signal.SIGKILL)
    up.wait_for("word of it", lambda: "Spark ended; it starts again" in up.tail(), 15)
    comes_out_once(up)
    assert "Spark ended" in (up.folder / "t.svg").read_text()


def test_a_driver_that_stands_still_is_ended_and_the_tasks_come_back(up: Up) -> None:
    """Batches of a sink and both tasks of a source run on the driver."""
    up.wait_for("records", lambda: up.records("events") > 1_000, 150)
    up.wait_for("files", lambda: any((up.folder / "out").glob("*.parquet")), 60)
    frozen = driver(up)
    os.kill(frozen.pid, signal.SIGSTOP)
    why = f"Spark's driver (pid {frozen.pid}) has not answered for {TIMEOUT_S} s and was ended"
    up.wait_for("word of it", lambda: f"{why}; it starts again" in up.tail(), 4 * TIMEOUT_S)
    up.wait_for("its end", lambda: not frozen.alive(), 15)
    of_task = re.compile(rf"task lake-0: Spark did not finish the batch: {re.escape(why)}$", re.M)
    up.wait_for("word of a task", lambda: of_task.search(up.tail(100_000)) is not None, 30)
    comes_out_once(up)
    assert up.tail(100_000).count("Spark is up again") == 1, "a driver at work was ended"


def driver(up: Up) -> Process:
    """The JVM that runs while records are still to come."""
    (jvm,) = [p for p in up.look() if "SparkConnectServer" in p.command and "/java" in p.command]
    assert up.records("events") < RECORDS
    return jvm


def comes_out_once(up: Up) -> None:
    up.wait_for("Spark", lambda: "Spark is up again" in up.tail(), 90)
    assert up.process is not None
    up.look()
    assert up.process.wait(240) == 0, up.tail()
    rows = [
        row["n"]
        for path in sorted((up.folder / "out").rglob("*.parquet"))
        if "_headgate" not in path.parts
        for row in pq.read_table(path, columns=["n"]).to_pylist()
    ]
    assert sorted(rows) == list(range(RECORDS))
