"""CPU seconds of one `kip415` round: the first join, work of a lost worker placed, a join."""

import gc
import time
from collections.abc import Iterable
from typing import TypeVar

from headgate.assignment import kip415
from headgate.assignment.model import MemberWork, Round, RoundInput
from headgate.ids import TaskId

SIZES = ((10, 1_000), (100, 10_000), (1_000, 100_000))
TASKS_PER_CONNECTOR = 10
DELAY_MS_MAX = 300_000
T = TypeVar("T")
Held = dict[str, tuple[tuple[str, ...], tuple[TaskId, ...]]]


def run() -> list[str]:
    """One line for each size."""
    return [_measure(workers, tasks) for workers, tasks in SIZES]


def _measure(workers: int, tasks: int) -> str:
    connectors = {
        f"connector-{n}": TASKS_PER_CONNECTOR for n in range(tasks // TASKS_PER_CONNECTOR)
    }
    ids = [f"worker-{n}" for n in range(workers)]
    held: Held = dict.fromkeys(ids, ((), ()))
    first_s, first = _timed(_input(connectors, held, 1, 0), None)
    held = _after(held, first)

    lost = {member_id: work for member_id, work in held.items() if member_id != ids[0]}
    _, waits = _timed(_input(connectors, lost, 2, 0), first.memory)
    placed_s, placed = _timed(_input(connectors, lost, 3, DELAY_MS_MAX), waits.memory)
    lost = _after(lost, placed)

    joined = {**lost, "worker-new": ((), ())}
    join_s, _ = _timed(_input(connectors, joined, 4, DELAY_MS_MAX), placed.memory)
    return (
        f"kip415 round, {workers:,} workers x {tasks:,} tasks: first join {first_s:.3f} s, "
        f"lost work placed {placed_s:.3f} s, join {join_s:.3f} s CPU"
    )


def _input(connectors: dict[str, int], held: Held, generation: int, now_ms: int) -> RoundInput:
    return RoundInput(
        members=tuple(MemberWork(member_id, *work) for member_id, work in held.items()),
        leader=next(reversed(held)),
        generation=generation,
        last_completed_generation=generation - 1,
        connectors=connectors,
        delay_ms_max=DELAY_MS_MAX,
        now_ms=now_ms,
    )


def _timed(round_input: RoundInput, memory: object | None) -> tuple[float, Round]:
    gc.collect()
    begun = time.process_time()
    done = kip415.assign(round_input, memory)
    return time.process_time() - begun, done


def _after(held: Held, done: Round) -> Held:
    return {
        member_id: (
            _changed(work[0], got.assigned_connectors, got.revoked_connectors),
            _changed(work[1], got.assigned_tasks, got.revoked_tasks),
        )
        for member_id, work in held.items()
        for got in (done.members[member_id],)
    }


def _changed(held: Iterable[T], added: Iterable[T], revoked: Iterable[T]) -> tuple[T, ...]:
    gone = set(revoked)
    return (*added, *(work for work in held if work not in gone))


if __name__ == "__main__":
    print("\n".join(run()))
