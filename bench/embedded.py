"""The embedded log alone: commits of batches like those of a source task, and how soon other
processes see them."""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headgate.ports import ProducerRecord
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings

BATCH = 2_000
RECORDS = 300_000
SINGLES = 500
WRITERS = 4
WRITER_COMMITS = 100


def run() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        transport = open_transport(transport_settings(folder))
        transport.record_log.create_topic("t", 1)
        transport.record_log.create_topic("shared", 1)
        try:
            return [
                *_writes_and_reads(transport),
                _appends(transport),
                *_follows(transport),
                _several_writers(folder),
            ]
        finally:
            transport.close()


def records_like_files(count: int) -> list[ProducerRecord]:
    """Return records with lines of some 100 bytes, and the key and headers that DirectorySource
    sets."""
    key = b"2026/11/events.jsonl"
    value = b'{"user": 1234567, "action": "click", "page": "/a/b/c", "at": 1795220025955, "n": %d}'
    return [
        ProducerRecord(
            "t",
            None,
            key,
            value % n,
            (("headgate.file", key), ("headgate.position", b"%d" % n)),
            1_795_220_025_955,
        )
        for n in range(count)
    ]


def _writes_and_reads(transport: EmbeddedTransport) -> Iterator[str]:
    log = transport.record_log
    sent = records_like_files(RECORDS)
    producer = log.producer("bench", "bench", None)
    producer.init()
    began, began_cpu = time.perf_counter(), time.process_time()
    for start in range(0, RECORDS, BATCH):
        producer.send(sent[start : start + BATCH])
        producer.commit([(b"source", b"%d" % start)])
    took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    yield (
        f"write, transactions of {BATCH} records: {RECORDS / took:,.0f} records/s, "
        f"{cpu / RECORDS * 1e6:.2f} us CPU per record"
    )
    position = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    while found := log.read("t", 0, position, RECORDS, BATCH):
        position = found[-1].offset + 1
    took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    yield (
        f"read in batches of {BATCH}: {RECORDS / took:,.0f} records/s, "
        f"{cpu / RECORDS * 1e6:.2f} us CPU per record"
    )


def _appends(transport: EmbeddedTransport) -> str:
    took: list[float] = []
    for n in range(SINGLES):
        began = time.perf_counter()
        transport.config_log.append([("bench", b"%d" % n)], privileged=False)
        took.append(time.perf_counter() - began)
    return f"append of one synced record: {_quantiles(took)}"


def _follows(transport: EmbeddedTransport) -> Iterator[str]:
    position = transport.config_log.end()

    def config() -> bool:
        nonlocal position
        found, position = transport.config_log.read(position)
        return bool(found)

    def append() -> None:
        transport.config_log.append([("bench", b"")], privileged=False)

    yield f"append until a follower has it (looks each ms): {_delay(append, config)}"
    consumer = transport.record_log.consumer("bench", ["shared"], "bench")
    while not consumer.assignment():
        consumer.poll(1, 100)
    producer = transport.record_log.producer("bench", None, None)

    def produce() -> None:
        producer.send([ProducerRecord("shared", 0, None, b"")])
        producer.acks()

    yield f"record until a consumer has it: {_delay(produce, lambda: bool(consumer.poll(10, 50)))}"
    consumer.close()


def _delay(act: Callable[[], None], look: Callable[[], bool]) -> str:
    """Return, as text, the delay from the return of `act` in another thread to the first `look`
    that finds something."""
    acted: list[float] = []
    go, over = threading.Semaphore(0), threading.Event()

    def write() -> None:
        while go.acquire() and not over.is_set():
            time.sleep(0.003)
            act()
            acted.append(time.perf_counter())

    writer = threading.Thread(target=write)
    writer.start()
    delays: list[float] = []
    for n in range(SINGLES):
        go.release()
        while not look():
            time.sleep(0.001)
        seen = time.perf_counter()
        while len(acted) <= n:
            time.sleep(0.0001)
        delays.append(max(seen - acted[n], 0.0))
    over.set()
    go.release()
    writer.join()
    return _quantiles(delays)


_WRITER = """
import sys, time
from bench.embedded import BATCH, WRITER_COMMITS, records_like_files
from headgate.ports import ProducerRecord
from headgate_embedded import open_transport, transport_settings
transport = open_transport(transport_settings(sys.argv[1]))
producer = transport.record_log.producer("w", sys.argv[2], None)
producer.init()
records = [ProducerRecord("shared", 0, r.key, r.value, r.headers, 0)
           for r in records_like_files(BATCH)]
print("ready", flush=True)
sys.stdin.readline()
slowest = 0.0
for _ in range(WRITER_COMMITS):
    producer.send(records)
    began = time.perf_counter()
    producer.commit([])
    slowest = max(slowest, time.perf_counter() - began)
print(slowest, flush=True)
transport.close()
"""


def _several_writers(folder: str) -> str:
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _WRITER, folder, f"writer-{n}"],
                    cwd=Path(__file__).parents[1],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for n in range(WRITERS)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        began = time.perf_counter()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        slowest = [float(writer.stdout.readline()) for writer in writers if writer.stdout]
        took = time.perf_counter() - began
    rate = WRITERS * WRITER_COMMITS * BATCH / took
    return (
        f"{WRITERS} processes, transactions of {BATCH}: {rate:,.0f} records/s in all, slowest "
        f"commit {max(slowest) * 1000:.0f} ms"
    )


def _quantiles(seconds: list[float]) -> str:
    cuts = statistics.quantiles(seconds, n=100)
    return f"median {cuts[49] * 1000:.2f} ms, 99th percentile {cuts[98] * 1000:.2f} ms"
