"""Prints what Headgate costs: `make bench`, or `python -m bench NAME...` for some of the parts.

The name `kafka` stands for all parts whose names begin with it.

Absolute numbers depend on the machine and its neighbours. Numbers that are printed side by side
were measured in the same run. Nothing here is a test.
"""

import importlib
import os
import platform
import sys
import time

PARTS = {
    "replay": "replay of a config topic of 1,000,000 records",
    "assignment": "a round of assignment, also beside Java's",
    "decide": "one decision of a herder that holds 100,000 tasks",
    "simulation": "simulated clusters",
    "listing": "a listing of 10,000 connectors, by REST and by gRPC",
    "embedded": "the embedded log, bare",
    "tasks": "a task's start, pause and stop, per runner",
    "spark": "Spark alone: starts, and SparkFileSink from the log",
    "spark_job": "a job on Spark: latency to a committed row, tasks, and recovery from kills",
    "spark_hosts": "a job on a standalone Spark cluster: recovery from lost executors and hosts",
    "pipeline": "DirectorySource to the log per runner, and the main job",
    "packed": "1,000 connectors with 2,000 idle tasks that share processes, beside ten tasks",
    "watchers": "1,000 watches of one worker by gRPC",
    "files": "files through the log to Parquet files, beside pyarrow and Spark",
    "tables": "files to Delta and Iceberg tables and back, beside deltalake and pyiceberg",
    "transforms": "`files` with three transforms, on batches and row by row",
    "kafka_control": "on Kafka: control operations of two workers, beside Java's",
    "kafka_source": "on Kafka: a file source with exactly-once, beside Java's",
    "kafka_start": "on Kafka: a worker's start on a long config topic, beside Java's",
    "kafka_config_writes": "on Kafka: the leader's writes to the config topic, by their size",
    "kafka_forwarded": "on Kafka: calls that go to the leader, by gRPC, HTTP and in Java's group",
    "kafka_listing": "on Kafka: a listing of 1,000 connectors by REST, beside Java's",
    "kafka_rows": "typed rows with three transforms: ours, beside Java's as JSON and Avro",
    "kafka_sink": "on Kafka: a topic to Parquet files, SparkFileSink beside Spark",
    "kafka_memory": "on Kafka: a worker's memory, beside Java's",
}


def main(names: list[str]) -> None:
    groups = {name.partition("_")[0] for name in PARTS}
    unknown = sorted(set(names) - set(PARTS) - groups)
    if unknown:
        sys.exit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    cores = os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, {platform.python_implementation()} ", end="")
    print(platform.python_version(), flush=True)
    for name, title in PARTS.items():
        if names and not {name, name.partition("_")[0]} & set(names):
            continue
        print(f"\n== {title}", flush=True)
        began = time.monotonic()
        for line in importlib.import_module(f"bench.{name}").run():
            print(f"  {line}", flush=True)
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
