"""A process that runs the task of a SparkFileSink, as a task body would, until all is committed.

Run as ``python spark_sink_process.py '{"remote", "data", "config", "topics"}'``.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence

from headgate.connector.api import RetriableError
from headgate.ports import TransportError
from headgate_runtime.transports.select import OPENER, open_elsewhere, opener_argument
from headgate_spark.file_sink import SparkFileSinkTask


class Context:
    """A `PlannedSinkTaskContext` without a worker."""

    stopping = False

    def __init__(
        self, remote: str, transport: Mapping[str, str], topics: Sequence[str], name: str = "lake"
    ) -> None:
        argument = opener_argument(transport, {}, name)
        self._opened = open_elsewhere(argument)
        self.log = self._opened.record_log
        self.log_elsewhere = (OPENER, argument)
        self.group = f"connect-{name}"
        self.topics = topics
        self.worker_settings = {"spark.remote": remote}
        self.told: list[tuple[int, str]] = []

    def errant_record_reporter(self) -> None:
        return None

    def skipped(self, count: int, detail: str) -> None:
        self.told.append((count, detail))

    def close(self) -> None:
        self._opened.close()


def run(remote: str, data: str, config: Mapping[str, str], topics: Sequence[str]) -> int:
    """Run batches until all that is in the log is committed. Return the number of batches."""
    context = Context(remote, {"kind": "embedded", "path": data}, topics)
    task = SparkFileSinkTask()
    task.context = context
    task.start(config)
    print("working", flush=True)
    batches = drain(task, context)
    task.stop()
    return batches


def drain(task: SparkFileSinkTask, context: Context) -> int:
    """Run batches of a started task until all is committed. Return the number of batches."""
    batches = 0
    while True:
        try:
            if task.run_batch():
                batches += 1
            elif caught_up(context):
                return batches
            else:
                time.sleep(0.05)
        except (RetriableError, TransportError) as error:
            print(error, file=sys.stderr, flush=True)
            time.sleep(0.5)


def caught_up(context: Context) -> bool:
    committed = context.log.committed(context.group)
    ends = context.log.end_offsets(context.topics)
    return all(committed.get(partition, 0) >= end for partition, end in ends.items())


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
