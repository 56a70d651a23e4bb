"""What a write to the config topic costs the leader, by how many records are written together.

The leader's producer writes to a single-node broker, in turns:
- One record in a transaction.
- A hundred task configs and their commit in one transaction, as in a group of Headgate's workers.
- A hundred task configs and their commit in two transactions, as beside Java workers.
- A hundred records in a transaction each.
- One record without a transaction.
"""

import statistics
import time
from collections.abc import Callable, Iterator

from bench.kafka_workers import middle, workers
from headgate.ids import TaskId
from headgate.topics.config_records import encode_commit, encode_task
from headgate_kafka.admin.topics import prepare_internal_topics
from headgate_kafka.logs.config_log import KafkaConfigLog
from headgate_kafka.transport import open_transport
from local_kafka.java_connect import defaults

REPEATS = 31
HUNDRED = 100
GROUP = "writes"
CONFIG = {"task.class": "FileStreamSourceTask", "file": "/data/in.txt", "topic": "lines"}
"""A task config of the usual size."""


def _steps(log: KafkaConfigLog) -> dict[str, Callable[[], object]]:
    tasks = [encode_task(TaskId("c", n), CONFIG) for n in range(HUNDRED)]
    commit = encode_commit("c", HUNDRED)

    def write(*records: tuple[str, bytes | None]) -> None:
        log.append(records, privileged=True)

    return {
        "1 record": lambda: write(tasks[0]),
        "100 records": lambda: write(*tasks[1:], commit),
        "100 records and a commit, in two": lambda: (write(*tasks), write(commit)),
        "100 records, each in its own": lambda: [write(task) for task in tasks],
        "1 record, no transaction": lambda: log.append(tasks[:1], privileged=False),
    }


def run() -> Iterator[str]:
    """Yield report lines: milliseconds by what is written, and the ratio to one record."""
    with workers() as made:
        properties = {
            **defaults(GROUP, ""),
            "kind": "kafka",
            "bootstrap.servers": made.broker.address,
            "group.id": GROUP,
            "exactly.once.source.support": "enabled",
        }
        prepare_internal_topics(properties, warn=lambda _line: None)
        transport = open_transport(properties)
        log = transport.config_log
        log.claim(1)
        steps = _steps(log)
        for write in steps.values():
            write()
        took: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(REPEATS):
            for name, write in steps.items():
                began = time.perf_counter()
                write()
                took[name].append((time.perf_counter() - began) * 1_000)
        transport.close()
    yield f"medians of {REPEATS} writes in turns, ms (smallest-largest), and to one record's"
    one = statistics.median(took["1 record"])
    for name, times in took.items():
        yield f"{name:36}{middle(times):>26}{statistics.median(times) / one:>9.2f}"
