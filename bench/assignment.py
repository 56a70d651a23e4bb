"""CPU seconds of a round of assignment: the first join, the reassignment of lost work, and a join.

The first lines are for the policies alone. The others are for all that a leader does, from the
members' metadata to their assignments, both in the bytes of protocol `sessioned`. They are measured
in turns with Java's assignor, which is warm. Java's CPU time is that of its process, and in
brackets that of its thread, which excludes garbage collection.

Java's round ends with a table of the owners of all work. Ours makes that table at the first
question for it, so the cost of the table is added.
"""

import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headgate.assignment import connect, kip415
from headgate.assignment.model import MemberWork, Policy, RoundInput
from headgate.ids import TaskId
from headgate.membership.codec import CODECS, Metadata
from headgate.membership.leading import Leader, Led, changed, lead
from headgate.membership.member_messages import WorkView
from headgate.membership.messages import GroupMember, JoinedGroup
from headgate_runtime.worker import collector

SIZES = ((10, 1_000), (100, 10_000), (1_000, 100_000))
TASKS_PER_CONNECTOR = 10
DELAY_MS_MAX = 300_000
STEPS = ("first join", "lost work placed", "join")
STORIES = 7
WARM_UP = 5
PROTOCOL = "sessioned"
URL = "http://10.0.0.7:8083/"
Held = dict[str, tuple[tuple[str, ...], tuple[TaskId, ...]]]
Step = Callable[[Held, int, int], Held]
"""Function that runs one round. Its arguments are the work that each member holds, the generation
and the time in milliseconds. It returns the work that each member holds afterwards."""


def run() -> Iterator[str]:
    """Yield a report line for each policy and size, then the lines beside Java's."""
    collector.settle()  # as a worker does
    for policy, name in ((kip415.assign, "kip415"), (connect.assign, "connect")):
        for workers, tasks in SIZES:
            ids = _ids(workers)
            alone = _Policy(policy, ids[-1], _connectors(tasks))
            _story(ids, alone.step)
            yield f"{name} alone, {_size(workers, tasks)}: {_told(alone.timed)}"
    yield from _beside_java(*SIZES[-1])


def _size(workers: int, tasks: int) -> str:
    return f"{workers:,} workers x {tasks // TASKS_PER_CONNECTOR:,} connectors x {tasks:,} tasks"


def _told(timed: list[float]) -> str:
    # A story has four rounds. The second only begins the delay.
    first, _, placed, join = timed
    parts = zip(STEPS, (first, placed, join), strict=True)
    return ", ".join(f"{step} {seconds:.3f} s" for step, seconds in parts)


def _connectors(tasks: int) -> dict[str, int]:
    return {f"connector-{n}": TASKS_PER_CONNECTOR for n in range(tasks // TASKS_PER_CONNECTOR)}


def _ids(workers: int) -> list[str]:
    return [f"connect-10.0.0.{n}:8083-{n:032x}" for n in range(workers)]


def _story(ids: list[str], step: Step) -> None:
    """Run four rounds: all members join, the first is lost, its work is reassigned, another
    joins."""
    held = step(dict.fromkeys(ids, ((), ())), 1, 1_000)
    lost = {member_id: work for member_id, work in held.items() if member_id != ids[0]}
    lost = step(lost, 2, 1_000)
    held = step(lost, 3, 1_000 + DELAY_MS_MAX)
    step({**held, "connect-10.0.1.0:8083-new": ((), ())}, 4, 1_000 + DELAY_MS_MAX)


class _Policy:
    """Runs the rounds of a policy alone."""

    def __init__(self, policy: Policy, leader: str, connectors: dict[str, int]) -> None:
        self._policy = policy
        self._leader = leader
        self._connectors = connectors
        self._memory: object | None = None
        self.timed: list[float] = []

    def step(self, held: Held, generation: int, now_ms: int) -> Held:
        round_input = RoundInput(
            members=tuple(MemberWork(member_id, *work) for member_id, work in held.items()),
            leader=self._leader,
            generation=generation,
            last_completed_generation=generation - 1,
            connectors=self._connectors,
            delay_ms_max=DELAY_MS_MAX,
            now_ms=now_ms,
        )
        seconds, done = _timed(lambda: self._policy(round_input, self._memory))
        self.timed.append(seconds)
        self._memory = done.memory
        return {name: changed(*work, done.members[name]) for name, work in held.items()}


class _Leaders:
    """Runs rounds of both leaders, ours and then Java's, on the same metadata."""

    def __init__(self, java: Any, leader: str, connectors: dict[str, int]) -> None:
        self._java = java
        self._leader = leader
        self._connectors = connectors
        self._memory: object | None = None
        self.ours: list[float] = []
        self.asking: list[float] = []
        """Seconds of the first question for an owner after each round."""
        self.javas: list[tuple[float, float]] = []
        """CPU seconds of the process and of the thread, one pair for each round."""

    def step(self, held: Held, generation: int, now_ms: int) -> Held:
        codec = CODECS[PROTOCOL]
        metadata = {
            name: codec.encode_metadata(Metadata(URL, 0, *work)) for name, work in held.items()
        }
        joined = JoinedGroup(
            group="connect",
            member_id=self._leader,
            generation=generation,
            protocol=PROTOCOL,
            leader=self._leader,
            members=tuple(GroupMember(*member) for member in metadata.items()),
        )
        brings = Leader(URL, 0, generation - 1, DELAY_MS_MAX, self._memory, "connect")
        view = WorkView(0, 0, self._connectors)
        seconds, led = _timed(lambda: lead(now_ms, joined, brings, view))
        asking, _ = _timed(lambda: led.owner_url("connector-0"))
        self.ours.append(seconds)
        self.asking.append(asking)
        self._memory = led.memory
        self.javas.append(self._ask(metadata, generation, now_ms, led))
        return {name: changed(*work, led.changes[name]) for name, work in led.held.items()}

    def forget(self) -> None:
        self._memory = None

    def _ask(
        self, metadata: dict[str, bytes], generation: int, now_ms: int, led: Led
    ) -> tuple[float, float]:
        if generation == 1:
            self._java.ask("leader", leader=self._leader, delay_ms_max=DELAY_MS_MAX)
        answer = self._java.ask(
            "round",
            leader=self._leader,
            protocol=PROTOCOL,
            now_ms=now_ms,
            generation=generation,
            last_completed_generation=generation - 1,
            offset=0,
            connectors=self._connectors,
            inconsistent=[],
            collect_first=True,
            members=[[name, data.hex()] for name, data in metadata.items()],
        )
        assert answer["assignments"] == {n: d.hex() for n, d in led.assignments.items()}
        return answer["cpu_ns"] / 1e9, answer["thread_cpu_ns"] / 1e9


def _beside_java(workers: int, tasks: int) -> Iterator[str]:
    for folder in ("tests", "tools"):
        sys.path.insert(0, str(Path(__file__).parents[1] / folder))
    from support.java.assignors import PROGRAM, JavaAssignors

    from local_kafka.jvm import compile_java, open_java

    sources = Path(__file__).parents[1] / "tests" / "java"
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        compile_java(sources / f"{PROGRAM}.java", Path(folder))
        process: subprocess.Popen[str] = open_java(
            Path(folder), PROGRAM, heap_mb=2_048, flags=("-Xms1g",)
        )
        try:
            java = JavaAssignors(process)
            ids, connectors = _ids(workers), _connectors(tasks)
            stories = [_Leaders(java, ids[-1], connectors) for _ in range(WARM_UP + STORIES)]
            for leaders in stories:
                _story(ids, leaders.step)
                leaders.forget()
        finally:
            process.kill()
            process.communicate()
    counted = stories[WARM_UP:]
    yield f"a leader's round of connect beside Java's, {_size(workers, tasks)}, of {STORIES}:"
    for step, at in zip(STEPS, (0, 2, 3), strict=True):
        ours = statistics.median(leaders.ours[at] for leaders in counted)
        asking = statistics.median(leaders.asking[at] for leaders in counted)
        javas, thread = (
            statistics.median(leaders.javas[at][of] for leaders in counted) for of in (0, 1)
        )
        yield (
            f"  {step}: {ours:.3f} s + {asking:.3f} s, Java {javas:.3f} s ({thread:.3f} s): "
            f"{(ours + asking) / javas:.2f} of its CPU time"
        )


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    begun = time.process_time()
    done = work()
    return time.process_time() - begun, done


if __name__ == "__main__":
    for line in run():
        print(line)
