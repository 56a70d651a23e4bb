"""How many tasks a Spark can hold at a time: arithmetic, for our own and for other Sparks.

A resident task holds its slot until it is stopped. If these tasks hold all slots, the next task,
and every planned batch, waits for ever. So slots are counted before anything starts.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?\])?")
_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


class SlotsError(Exception):
    """The master cannot be parsed, or there are too few slots."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters for a Spark with `slots` slots, of which `cores` are meant to compute."""

    master: str
    slots: int
    cores: int
    executors: bool
    """Whether executors are processes of their own."""
    executor_memory_mb: int | None = None
    """Memory of an executor in ``local-cluster``. Spark refuses executors that ask for more than
    their Spark worker has."""


def slots_wanted(workers: int, tasks_max: Sequence[int], per_process: int = 1) -> int:
    """Return the slots for the resident tasks of all connectors, and two per worker. These are for
    planned batches, and for tasks that start while the tasks they replace are still ending.

    Args:
        per_process: how many tasks share a slot. With more than one, each worker has one process
            that is not full, and one for tasks that may have crashed their process.
    """
    if per_process == 1:
        return workers * 2 + sum(tasks_max)
    return workers * 4 + -(-sum(tasks_max) // per_process)


def plan(master: str, slots: int, cpus: int) -> Plan:
    """Return how to start a master that has at least `slots` slots.

    Slots are only a number. The N of ``local[N]`` says how many are meant to compute, and becomes
    the parallelism of jobs. For ``local-cluster[executors,cores,MB]`` each executor gets more
    cores. Other masters are left as they are: their operators have set their cores.

    Args:
        cpus: CPUs of this machine, for ``local[*]``.

    Raises:
        SlotsError: a local master that Spark would not understand.
    """
    if found := _LOCAL.fullmatch(master):
        cores = cpus if found[1] == "*" else int(found[1] or 1)
        slots = max(slots, cores)
        return Plan(f"local[{slots}]", slots, cores, executors=False)
    if found := _CLUSTER.fullmatch(master):
        executors, cores, memory = int(found[1]), int(found[2]), int(found[3])
        if executors < 1 or cores < 1:
            raise SlotsError(f"{master} has no executors, expected at least local-cluster[1,1,512]")
        # If one executor is lost, the others must hold its tasks until it is back.
        others = max(executors - 1, 1)
        per_executor = max(cores, -(-slots // others))
        return Plan(
            f"local-cluster[{executors},{per_executor},{memory}]",
            per_executor * executors,
            executors * cores,
            executors=True,
            executor_memory_mb=memory,
        )
    if master.startswith("local"):
        raise SlotsError(
            f"spark.master is {master!r}, expected local[N], local[*], "
            "local-cluster[executors,cores,MB], or the address of a cluster"
        )
    return Plan(master, slots, cpus, executors=True)


def most_at_once(spans: Sequence[tuple[int, int]]) -> int:
    """Return the most of these (begin, end) spans that were under way at one moment."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    here = most = 0
    for _, change in changes:
        here += change
        most = max(most, here)
    return most


def most_of_some(measure: Callable[[], int], wanted: int) -> int:
    """Return the most that `measure` finds. It is called until it finds `wanted`, or no more than
    before.

    For a measurement that can only err by finding too few.
    """
    most, found = 0, measure()
    while most < found < wanted:
        most, found = found, measure()
    return max(most, found)


def too_few(
    remote: str, free: int, workers: int, tasks_max: Sequence[int], per_process: int = 1
) -> str | None:
    """Return why a Spark that is not ours is refused, or None."""
    wanted = slots_wanted(workers, tasks_max, per_process)
    if free >= wanted:
        return None
    each, more = ("one for each", "two")
    if per_process > 1:
        each, more = (f"one for every {per_process}", "four")
    return (
        f"spark.remote {remote} has {free} free slots, but {wanted} are needed: {each} of "
        f"{sum(tasks_max)} tasks (the sum of tasks.max) and {more} for each of {workers} workers. "
        "Give it more (spark.executor.cores is only a number and may be larger than the cores of "
        "the machine), lower tasks.max, or leave spark.remote out to have a Spark started here."
    )
