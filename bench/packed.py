"""1,000 connectors with two tasks each that have nothing to do, 50 tasks in a process, beside five.

Each is a `headgate up` on the embedded log. Memory is the proportional set size of everything below
it, Spark's JVM included. A step is timed from the call over gRPC to the answer that both tasks of
the connector are in the state. Set HEADGATE_BENCH_PACKED for another number of connectors, and
HEADGATE_BENCH_PACKED_RUNNERS for some of the runners.
"""

import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.processes import below, cpu_seconds, pss_mib
from bench.up_job import headgate
from headgate_grpc.client import Client, HeadgateError
from headgate_grpc.v1 import connector_pb2

MANY = int(os.environ.get("HEADGATE_BENCH_PACKED", "1000"))
RUNNERS = os.environ.get("HEADGATE_BENCH_PACKED_RUNNERS", "process,spark").split(",")
FEW = 5
TASKS = 2
PER_PROCESS = 50
ROUNDS = 11
IDLE_S = 20.0
UP_S = 1_200.0
LOOK_S = 0.2


def run() -> Iterator[str]:
    for runner in RUNNERS:
        steps: dict[int, dict[str, float]] = {}
        for connectors in (FEW, MANY):
            with tempfile.TemporaryDirectory(prefix="headgate-packed-") as folder:
                lines, steps[connectors] = _measured(Path(folder), runner, connectors)
            yield from lines
        for name, few in steps[FEW].items():
            many = steps[MANY][name]
            yield (
                f"{runner}: {name}: {few * 1000:.0f} ms of {FEW * TASKS} tasks, "
                f"{many * 1000:.0f} ms of {MANY * TASKS}: {many / few:.2f}"
            )


def _measured(folder: Path, runner: str, connectors: int) -> tuple[list[str], dict[str, float]]:
    """Report lines, and the median of each step in seconds."""
    (folder / "pipeline.toml").write_text(_pipeline(runner, connectors), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    began = time.perf_counter()
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [headgate(), "up", "pipeline.toml"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        address = f"unix:{folder / 'state' / 'grpc.sock'}"
        _wait(lambda: (folder / "state" / "grpc.sock").exists(), process, folder)
        with Client(address, timeout_s=120) as client:
            _wait(lambda: _settled(client) == connectors, process, folder)
            up_s, up_cpu = time.perf_counter() - began, cpu_seconds(process.pid)
            time.sleep(IDLE_S / 2)
            mib, count = pss_mib(process.pid), len(below(process.pid))
            cpu, asked = cpu_seconds(process.pid), time.perf_counter()
            time.sleep(IDLE_S)
            idle = (cpu_seconds(process.pid) - cpu) / (time.perf_counter() - asked)
            steps = _steps(client, connectors)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(UP_S)
    line = (
        f"{runner}, {connectors} connectors, {connectors * TASKS} tasks: {mib:.0f} MiB in {count} "
        f"processes; all RUNNING after {up_s:.0f} s ({up_cpu:.0f} s CPU); idle "
        f"{idle * 100:.1f} percent of a core"
    )
    return [line], steps


def _pipeline(runner: str, connectors: int) -> str:
    tables = [
        f'[connectors.c{number}]\n"connector.class" = "bench.idle_source:IdleSource"\n'
        f'"tasks.max" = "{TASKS}"\n'
        for number in range(connectors)
    ]
    cluster = (
        f'[cluster]\ndata = "state"\nrunner = "{runner}"\nworkers = 1\n'
        f'"headgate.tasks.per.process" = "{PER_PROCESS}"\n'
    )
    return "\n".join([cluster, *tables])


def _wait(reached: Callable[[], bool], process: "subprocess.Popen[bytes]", folder: Path) -> None:
    until = time.perf_counter() + UP_S
    while not reached():
        time.sleep(LOOK_S)
        if process.poll() is not None or time.perf_counter() > until:
            said = (folder / "up.log").read_text("utf-8", "replace")
            raise RuntimeError(f"the tasks do not all run; it said:\n{said[-5_000:]}")


def _settled(client: Client) -> int:
    try:
        found = client.list(view=connector_pb2.CONNECTOR_VIEW_STATUS)
        return sum(each.settled and len(each.tasks) == TASKS for each in found)
    except HeadgateError:
        return 0


def _steps(client: Client, connectors: int) -> dict[str, float]:
    took: dict[str, list[float]] = {"pause": [], "resume": [], "stop": [], "start again": []}
    asks: tuple[Callable[[str], Any], ...] = (
        client.pause,
        client.resume,
        client.stop,
        client.resume,
    )
    for turn in range(ROUNDS):
        name = f"c{turn * connectors // ROUNDS}"
        for step, ask in zip(took, asks, strict=True):
            began = time.perf_counter()
            answer = ask(name)
            client.wait(name, min_config_offset=answer.config_offset)
            took[step].append(time.perf_counter() - began)
            time.sleep(0.3)
    return {step: statistics.median(times) for step, times in took.items()}
