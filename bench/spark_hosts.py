"""Recovery of `headgate up` on a standalone Spark cluster of two hosts after it loses a part.

The hosts are two addresses of this machine, each with a Spark worker and a folder. A steady 200
lines per second come in. Seconds are from the loss until there are records of the source's next
run, and until the sink has committed one of them. A lost host is started again before the next
loss.

A lost task is started again after a pause, which grows each time unless the task ran for a minute
before. So each loss comes after such a minute and meets the shortest pause.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from bench.live_job import BLOWS, SINK, JobLog, Recovery, Steady, report, seen, took, warm
from bench.processes import spark_drivers
from bench.up_job import UpJob, temporary_job
from headgate.herder.context import RETRY_DELAY_MS_MAX

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.spark.standalone import HOSTS, Standalone

DRIVER_HOST = "127.0.0.4"
QUIET_S = RETRY_DELAY_MS_MAX / 1000 + 2
"""Seconds of a task's run after which its next pause is the shortest again."""
RUN_LOOK_S = 0.05
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
    """Yield report lines: recoveries by what was lost."""
    yield f"after a loss, {BLOWS} of each: seconds to new records, and to their first commit"
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        closing(Standalone(Path(folder))) as cluster,
    ):
        cluster.start()
        pipeline = PIPELINE.format(master=cluster.master_url, host=DRIVER_HOST)
        with temporary_job(pipeline, SINK) as job:
            warm(job)
            with Steady(job), JobLog(job) as log:
                for name, lose in _losses(cluster, job).items():
                    yield report(name, [_recovered(log, cluster, lose) for _ in range(BLOWS)])


def _losses(cluster: Standalone, job: UpJob) -> dict[str, Callable[[str], None]]:
    """Return, by name, the functions that cause a loss. Each is given the host of the source's
    task."""
    return {
        "the executor that has the source's task": lambda home: _kill(cluster.executors(home)),
        "the host that has the source's task": cluster.kill_worker,
        "the application, ended by the master": lambda _: cluster.kill_application(),
        "the driver": lambda _: _kill(spark_drivers(job.pid)),
    }


def _recovered(log: JobLog, cluster: Standalone, lose: Callable[[str], None]) -> Recovery:
    for host in HOSTS:
        if not cluster.has_worker(host):
            cluster.start_worker(host)
    early: dict[int, str] = {}
    if log.grows() is not None:
        early = cluster.bodies()
        time.sleep(QUIET_S)
    # The task bodies of the sink's batches have ended by now, so those left are the source's.
    homes = [host for pid, host in cluster.bodies().items() if pid in early]
    if not homes:
        return None, None  # the job did not recover from the loss before
    lost = log.run()
    lose(homes[0])
    began = time.perf_counter()
    # The lost task may still write until its process ends.
    if seen(lambda: log.run() not in (None, lost), RUN_LOOK_S) is None:
        return None, None
    before = log.records()
    source, sink = seen(lambda: log.records() > before), seen(lambda: log.committed() > before)
    return took(began, source), took(began, sink)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
