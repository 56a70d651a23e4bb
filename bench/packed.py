"""1,000 connectors with two idle tasks each, 50 tasks in a process, beside five connectors.

Each of the two is a `headgate up` on the embedded log. Both run at the same time, and each step is
made in one and then in the other, so that the machine is equally busy for both. Memory is the
proportional set size of all processes below it, including Spark's JVM. A step is timed from the
gRPC call to the answer that both tasks of the connector are in the state.

HEADGATE_BENCH_PACKED sets another number of connectors. HEADGATE_BENCH_PACKED_RUNNERS selects
runners.
"""

import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

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
REST_S = 0.3
STEPS = ("pause", "resume", "restart", "config change", "stop", "start again")


def run() -> Iterator[str]:
    for runner in RUNNERS:
        with ExitStack() as stack:
            clusters: list[Cluster] = []
            for connectors in (FEW, MANY):
                name = tempfile.TemporaryDirectory(prefix="headgate-packed-")
                folder = Path(stack.enter_context(name))
                clusters.append(stack.enter_context(Cluster(folder, runner, connectors)))
                yield f"{runner}, {clusters[-1].measured()}"
            took = _steps(clusters)
        few, many = clusters
        for step in STEPS:
            short, long = (statistics.median(took[step, each.connectors]) for each in clusters)
            yield (
                f"{runner}: {step}: {short * 1000:.0f} ms of {few.connectors * TASKS} tasks, "
                f"{long * 1000:.0f} ms of {many.connectors * TASKS}: {long / short:.2f}"
            )


class Cluster:
    """A `headgate up` with a number of connectors, from its start until it was stopped."""

    def __init__(self, folder: Path, runner: str, connectors: int) -> None:
        self.connectors = connectors
        self._folder = folder
        self._stack = ExitStack()
        (folder / "pipeline.toml").write_text(_pipeline(runner, connectors), encoding="utf-8")

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        log = self._stack.enter_context((self._folder / "up.log").open("wb"))
        self._process = subprocess.Popen(
            [headgate(), "up", "pipeline.toml"],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdout=log,
            stderr=log,
        )
        self._stack.callback(self._end)
        socket = self._folder / "state" / "grpc.sock"
        try:
            self._wait(socket.exists)
            self._client = self._stack.enter_context(Client(f"unix:{socket}", timeout_s=120))
            self._wait(lambda: self._settled() == self.connectors)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(UP_S)

    def measured(self) -> str:
        """Return a report line: time and CPU of the start, memory, and CPU while idle."""
        root = self._process.pid
        up_s, up_cpu = time.perf_counter() - self._began, cpu_seconds(root)
        time.sleep(IDLE_S / 2)
        mib, count = pss_mib(root), len(below(root))
        cpu, asked = cpu_seconds(root), time.perf_counter()
        time.sleep(IDLE_S)
        idle = (cpu_seconds(root) - cpu) / (time.perf_counter() - asked)
        return (
            f"{self.connectors} connectors, {self.connectors * TASKS} tasks: {mib:.0f} MiB in "
            f"{count} processes; all RUNNING after {up_s:.0f} s ({up_cpu:.0f} s CPU); idle "
            f"{idle * 100:.1f} percent of a core"
        )

    def step(self, step: str, turn: int) -> float:
        """Return the seconds until one connector, chosen by `turn`, has gone through `step`."""
        name = f"c{turn * self.connectors // ROUNDS}"
        client = self._client
        began = time.perf_counter()
        offset = 0
        match step:
            case "pause":
                offset = client.pause(name).config_offset
            case "resume" | "start again":
                offset = client.resume(name).config_offset
            case "stop":
                offset = client.stop(name).config_offset
            case "restart":
                client.restart(name, include_tasks=True)
            case _:
                offset = client.put_config(name, _config(str(turn))).config_offset
        client.wait(name, min_config_offset=offset)
        return time.perf_counter() - began

    def _wait(self, reached: Callable[[], bool]) -> None:
        until = time.perf_counter() + UP_S
        while not reached():
            time.sleep(LOOK_S)
            if self._process.poll() is not None or time.perf_counter() > until:
                said = (self._folder / "up.log").read_text("utf-8", "replace")
                raise RuntimeError(f"the tasks do not all run; it said:\n{said[-5_000:]}")

    def _settled(self) -> int:
        try:
            found = self._client.list(view=connector_pb2.CONNECTOR_VIEW_STATUS)
            return sum(each.settled and len(each.tasks) == TASKS for each in found)
        except HeadgateError:
            return 0


def _steps(clusters: "list[Cluster]") -> dict[tuple[str, int], list[float]]:
    took: dict[tuple[str, int], list[float]] = {}
    for turn in range(ROUNDS):
        for step in STEPS:
            for cluster in clusters:
                took.setdefault((step, cluster.connectors), []).append(cluster.step(step, turn))
                time.sleep(REST_S)
    return took


def _config(note: str = "") -> dict[str, Any]:
    noted = {"note": note} if note else {}
    return {"connector.class": "bench.idle_source:IdleSource", "tasks.max": str(TASKS), **noted}


def _pipeline(runner: str, connectors: int) -> str:
    lines = [f'"{key}" = "{value}"\n' for key, value in _config().items()]
    tables = [f"[connectors.c{number}]\n{''.join(lines)}" for number in range(connectors)]
    cluster = (
        f'[cluster]\ndata = "state"\nrunner = "{runner}"\nworkers = 1\n'
        f'"headgate.tasks.per.process" = "{PER_PROCESS}"\n'
    )
    return "\n".join([cluster, *tables])
