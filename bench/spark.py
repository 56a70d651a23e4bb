"""Records per second of SparkFileSink from the embedded log, and of starting tasks on Spark.

python bench/spark.py [--records 1000000] [--master local[2]] [--format parquet]
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from support import spark_sink_process  # noqa: E402

from headgate.ports import ProducerRecord  # noqa: E402
from headgate_embedded import open_transport  # noqa: E402
from headgate_spark.launcher import SparkLauncher  # noqa: E402
from headgate_spark.server import SparkServer  # noqa: E402


def fill(data: str, count: int) -> None:
    transport = open_transport({"kind": "embedded", "path": data})
    transport.record_log.create_topic("events", 2)
    producer = transport.record_log.producer("bench", None, None)
    for start in range(0, count, 5_000):
        producer.send(
            [
                ProducerRecord("events", n % 2, None, json.dumps(_record(n)).encode())
                for n in range(start, min(start + 5_000, count))
            ]
        )
        producer.acks()
    producer.close()
    transport.close()


def _record(n: int) -> dict[str, object]:
    return {"id": n, "name": f"user {n}", "score": n * 0.5, "ok": n % 3 == 0, "at": "2026-01-01"}


def first_tasks(server: SparkServer, count: int) -> float:
    """Seconds until `count` tasks launched at once are over; their body does nothing."""
    launcher = SparkLauncher(server.address, "os.path:basename")
    done = threading.Semaphore(0)
    begin = time.perf_counter()
    for number in range(count):
        launcher.launch(str(number), "x", lambda _error: done.release())
    for _ in range(count):
        done.acquire()
    took = time.perf_counter() - begin
    launcher.close()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--format", default="parquet")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/log"
        fill(data, given.records)
        server = SparkServer(given.master, 12, f"{folder}/spark", python_path=[str(TESTS)])
        begin = time.perf_counter()
        server.start()
        print(f"Spark listens after {time.perf_counter() - begin:.1f} s")
        try:
            for name in ("cold", "warm"):
                print(f"8 tasks, {name}: {first_tasks(server, 8):.2f} s")
            begin = time.perf_counter()
            config = {"path": f"{folder}/out", "format": given.format, "batch.interval.ms": "0"}
            batches = spark_sink_process.run(server.address, data, config, ["events"])
            took = time.perf_counter() - begin
            rate = given.records / took
            print(f"{given.records} records, {batches} batches: {took:.1f} s, {rate:,.0f} rec/s")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
