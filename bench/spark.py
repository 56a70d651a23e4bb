"""Spark without a worker: how soon tasks that are launched at once begin and end, and SparkFileSink
from the embedded log to Parquet."""

import contextlib
import io
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench import shared_spark
from bench.processes import cpu_seconds
from headgate.ports import ProducerRecord
from headgate_embedded import open_transport

TASKS = 8
RECORDS = 400_000
BATCH = 5_000


def run() -> Iterator[str]:
    """Yield report lines: the start of tasks, including their session, and the time of the sink."""
    address = shared_spark.server().address
    for name in ("cold", "warm"):
        took = _tasks_at_once(TASKS)
        yield f"a session and {TASKS} tasks at once that do nothing, {name}: {took:.2f} s"
    for name in ("cold", "warm"):
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
            yield f"sink, {name}: {_sink(address, folder)}"


def _tasks_at_once(count: int) -> float:
    """Return the seconds until all tasks have ended."""
    launcher = shared_spark.launcher("os.path:basename")
    done = threading.Semaphore(0)
    began = time.perf_counter()
    for number in range(count):
        launcher.launch(str(number), "x", lambda _error: done.release())
    for _ in range(count):
        done.acquire()
    took = time.perf_counter() - began
    launcher.close()
    return took


def _sink(address: str, folder: str) -> str:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.spark import sink_process as spark_sink_process

    _fill(f"{folder}/log")
    config = {"path": f"{folder}/out", "format": "parquet", "batch.interval.ms": "0"}
    began, cpu = time.perf_counter(), cpu_seconds(os.getpid())
    with contextlib.redirect_stdout(io.StringIO()):
        batches = spark_sink_process.run(address, f"{folder}/log", config, ["events"])
    took, cpu = time.perf_counter() - began, cpu_seconds(os.getpid()) - cpu
    return (
        f"{RECORDS:,} records of 5 fields in {batches} batches, {RECORDS / took:,.0f} records/s, "
        f"{cpu / RECORDS * 1e6:.2f} us CPU per record"
    )


def _fill(data: str) -> None:
    transport = open_transport({"kind": "embedded", "path": data})
    transport.record_log.create_topic("events", 2)
    producer = transport.record_log.producer("bench", None, None)
    for start in range(0, RECORDS, BATCH):
        producer.send(
            [
                ProducerRecord("events", n % 2, None, json.dumps(_record(n)).encode())
                for n in range(start, start + BATCH)
            ]
        )
        producer.acks()
    producer.close()
    transport.close()


def _record(n: int) -> dict[str, object]:
    return {"id": n, "name": f"user {n}", "score": n * 0.5, "ok": n % 3 == 0, "at": "2026-01-01"}
