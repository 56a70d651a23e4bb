"""A `headgate up` on a standalone Spark cluster of two hosts: how soon it goes on after a loss.

The hosts are two addresses of this machine, with a Spark worker and a folder each. Recovery is the
time until new records are in the log, and until the sink commits again, at a steady 200 lines a
second. A host that is lost is there again before the next loss.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from bench.live_job import BLOWS, PATIENCE_S, SINK, JobLog, Steady, recoveries, warm
from bench.processes import spark_drivers
from bench.up_job import UpJob, temporary_job

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.spark.standalone import HOSTS, Standalone

DRIVER_HOST = "127.0.0.4"
PIPELINE = """
[cluster]
workers = 2
runner = "spark"
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
[spark]
master = "{master}"
host = "{host}"
[spark.conf]
"spark.executor.memory" = "700m"
[connectors.events]
"connector.class" = "DirectorySource"
path = "in"
topic = "events"
"poll.interval.ms" = 20
[connectors.lake]
"connector.class" = "SparkFileSink"
topics = "events"
path = "out"
format = "parquet"
"batch.interval.ms" = 0
"""


def run() -> Iterator[str]:
    """Report lines: recoveries by what was lost."""
    yield f"after a loss, {BLOWS} of each: seconds to new records, to the sink's next commit"
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        closing(Standalone(Path(folder))) as cluster,
    ):
        cluster.start()
        pipeline = PIPELINE.format(master=cluster.master_url, host=DRIVER_HOST)
        with temporary_job(pipeline, SINK) as job:
            warm(job)
            with Steady(job), JobLog(job) as log:
                for name, blow in _blows(cluster, job).items():
                    yield recoveries(name, log, blow)


def _blows(cluster: Standalone, job: UpJob) -> dict[str, Callable[[], None]]:
    return {
        "the executor that has the source's task": lambda: _executor(cluster),
        "the host that has the source's task": lambda: _host(cluster),
        "the application, ended by the master": cluster.kill_application,
        "the driver": lambda: _driver(job),
    }


def _home(cluster: Standalone) -> str:
    """The host that has a task of the source, with both hosts there."""
    until = time.monotonic() + PATIENCE_S
    while not (found := cluster.bodies()):
        if time.monotonic() > until:
            raise RuntimeError("no task runs on the cluster")
        time.sleep(0.1)
    return next(iter(found.values()))


def _executor(cluster: Standalone) -> None:
    for pid in cluster.executors(_home(cluster)):
        os.kill(pid, signal.SIGKILL)


def _host(cluster: Standalone) -> None:
    for host in HOSTS:
        if not cluster.has_worker(host):
            cluster.start_worker(host)
    cluster.kill_worker(_home(cluster))


def _driver(job: UpJob) -> None:
    (pid,) = spark_drivers(job.pid)
    os.kill(pid, signal.SIGKILL)
