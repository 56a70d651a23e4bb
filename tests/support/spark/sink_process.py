"""A process that runs the task of SparkFileSink as a task body would, until nothing is left.

Run as ``python spark_sink_process.py '{"remote", "data", "config", "topics"}'``.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence

from headgate.connector.api import RetriableError
from headgate_embedded import open_transport
from headgate_runtime.transports.select import OPENER, opener_argument
from headgate_spark.file_sink import SparkFileSinkTask


class Context:
    """`PlannedSinkTaskContext` without a worker."""

    stopping = False

    def __init__(self, remote: str, data: str, topics: Sequence[str]) -> None:
        transport = {"kind": "embedded", "path": data}
        self.log = open_transport(transport).record_log
        self.log_elsewhere = (OPENER, opener_argument(transport, {}, "lake"))
        self.group = "connect-lake"
        self.topics = topics
        self.worker_settings = {"spark.remote": remote}
        self.told: list[tuple[int, str]] = []

    def skipped(self, count: int, detail: str) -> None:
        self.told.append((count, detail))


def run(remote: str, data: str, config: Mapping[str, str], topics: Sequence[str]) -> int:
    """Runs batches until all that is in the log is committed; returns how many."""
    context = Context(remote, data, topics)
    task = SparkFileSinkTask()
    task.context = context
    task.start(config)
    batches = 0
    print("working", flush=True)
    while caught_up(context) is False:
        try:
            if task.run_batch():
                batches += 1
            else:
                time.sleep(0.05)
        except RetriableError as error:
            print(error, file=sys.stderr, flush=True)
            time.sleep(0.5)
    task.stop()
    return batches


def caught_up(context: Context) -> bool:
    committed = context.log.committed(context.group)
    ends = context.log.end_offsets(context.topics)
    return all(committed.get(partition, 0) >= end for partition, end in ends.items())


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
