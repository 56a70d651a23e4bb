"""A `headgate up` on a standalone Spark cluster of two hosts: how soon it goes on after a loss.

The hosts are two addresses of this machine, with a Spark worker and a folder each. A steady 200
lines a second come in. Seconds are from the loss until there are records of the source's next run,
and until the sink has committed one of them. A host that was lost is there again before the next
loss.

A task that was lost waits before it is started anew, and longer each time if it was not running for
a minute before. So each loss comes after such a minute, and meets the shortest pause.
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
"""A run that lasted so long makes the pauses begin anew."""
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
    """Report lines: recoveries by what was lost."""
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
    """What is lost, and how: told the host that has the source's task."""
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
    # Those of the sink's batches are gone by now.
    homes = [host for pid, host in cluster.bodies().items() if pid in early]
    if not homes:
        return None, None  # nothing goes on since the loss before
    lost = log.run()
    lose(homes[0])
    began = time.perf_counter()
    # Until its process ends, the lost task may still write.
    if seen(lambda: log.run() not in (None, lost), RUN_LOOK_S) is None:
        return None, None
    before = log.records()
    source, sink = seen(lambda: log.records() > before), seen(lambda: log.committed() > before)
    return took(began, source), took(began, sink)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
