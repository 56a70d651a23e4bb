"""1,000 watches of one worker by gRPC: their memory in the worker, and how soon they see a change.

The worker, on the embedded log, is a process of its own. The watchers all are in this process,
whose own work is part of the latencies. HEADGATE_BENCH_WATCHERS sets another number.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc

from bench.processes import cpu_seconds, pss_mib
from headgate_grpc.client import connect_async
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1.connector_service_pb2 import WatchConnectorsRequest, WatchConnectorsResponse
from headgate_grpc.v1.connector_service_pb2_grpc import ConnectorServiceStub

WATCHERS = int(os.environ.get("HEADGATE_BENCH_WATCHERS", "1000"))
STREAMS = 50
"""Number of watches on one connection."""
CHANGES = 40
SETTLE_S = 2.0
CONFIG = {"connector.class": "FileStreamSink", "topics": "t", "file": "out.txt"}
STOPPED = connector_pb2.TARGET_STATE_STOPPED


def serve(folder: str) -> None:
    """Run a worker until standard input ends. Prints the worker's address."""
    from support.grpc.worker import grpc_worker

    with grpc_worker(Path(folder)) as served:
        print(served.address, flush=True)
        sys.stdin.read()


def run() -> Iterator[str]:
    """Yield report lines: the memory, and the latency of a change."""
    root = Path(__file__).parents[1]
    path = os.pathsep.join((str(root), str(root / "tests")))
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        worker = subprocess.Popen(
            [sys.executable, "-c", f"from bench import watchers; watchers.serve({folder!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        try:
            assert worker.stdout is not None
            address = worker.stdout.readline().strip()
            yield from asyncio.run(_measured(address, worker.pid))
        finally:
            worker.communicate()


async def _measured(address: str, pid: int) -> list[str]:
    async with connect_async(address) as client:
        await client.create("watched", CONFIG, STOPPED)
        await client.wait("watched")
        one = await _opened(address, 1)  # makes the worker create its table of watched connectors
        await asyncio.sleep(SETTLE_S)
        before = pss_mib(pid)
        many = await _opened(address, WATCHERS)
        await asyncio.sleep(SETTLE_S)
        taken = pss_mib(pid) - before
        cpu, worst, middle = cpu_seconds(pid), [], []
        for n in range(CHANGES):
            seen = [asyncio.ensure_future(_sees(stream, str(n))) for _, stream in many]
            began = time.perf_counter()
            await client.put_config("watched", {**CONFIG, "marker": str(n)})
            took = sorted(at - began for at in await asyncio.gather(*seen))
            middle.append(took[len(took) // 2])
            worst.append(took[int(len(took) * 0.99)])
        cpu = (cpu_seconds(pid) - cpu) / CHANGES
        for channel, _ in (*one, *many):
            await channel.close()
    return [
        f"{WATCHERS:,} watches take {taken:.1f} MiB of the worker",
        f"one change is seen by all: p50 {1e3 * statistics.median(middle):.0f} ms, "
        f"p99 {1e3 * statistics.median(worst):.0f} ms, {1e3 * cpu:.0f} ms CPU of the worker "
        f"(medians of {CHANGES})",
    ]


_Watch = tuple[grpc.aio.Channel, AsyncIterator[WatchConnectorsResponse]]


async def _opened(address: str, count: int) -> list[_Watch]:
    """Open watches, and read each until it has seen the present state of all connectors."""
    target = address.removeprefix("grpc://")
    options = (("grpc.use_local_subchannel_pool", 1),)  # a connection for each channel
    found: list[_Watch] = []
    for n in range(count):
        if n % STREAMS == 0:
            channel = grpc.aio.insecure_channel(target, options=options)
        stream = ConnectorServiceStub(channel).WatchConnectors(WatchConnectorsRequest()).__aiter__()
        while not (await anext(stream)).synced:
            pass
        found.append((channel, stream))
    return found


async def _sees(stream: AsyncIterator[WatchConnectorsResponse], marker: str) -> float:
    """Return the time at which a watch saw the change."""
    async for response in stream:
        if any(each.config.get("marker") == marker for each in response.connectors):
            return time.perf_counter()
    raise AssertionError("a watch has no end")
