"""Checks whether a Spark that is not ours has room for the tasks that are to run on it."""

import re
from collections.abc import Sequence

from headgate_spark.sessions import Sessions, shown_remote
from headgate_spark.slots import SlotsError, most_at_once, most_of_some, slots_wanted, too_few

OLDEST = (4, 3)
"""The oldest Spark that Headgate is tested with, major and minor version."""
HOLD_MS = 3000
"""How long each probe holds its slot: longer than a busy Spark needs to hand out all tasks of a
job."""

# The probes run in the JVM, where a task costs nothing to start. Forking a Python worker for each
# takes so long on a small machine that the first would end before the last began.
_HOLD = (
    "java_method('java.lang.System', 'currentTimeMillis') as begin",
    f"java_method('java.lang.Thread', 'sleep', {HOLD_MS}L) as slept",
    "java_method('java.lang.System', 'currentTimeMillis') as end",
)


def free_slots(remote: str, wanted: int) -> int:
    """Return how many of `wanted` tasks this Spark can run at a time just now, besides other users'
    work.

    It is measured, because a client of Spark Connect cannot ask. `wanted` tasks each hold a slot
    for some seconds, and those that overlapped are counted.

    A Spark that has just started, or a busy machine, may hand them out more slowly, so that too few
    overlap. So while the result is too small, the measurement is repeated until it no longer grows.

    Raises:
        SlotsError: the server cannot be reached, or is too old.
    """
    sessions = Sessions(remote)
    try:
        check_version(f"Spark at {shown_remote(remote)}", sessions.get().version)
        return most_of_some(lambda: _overlapping(sessions, wanted), wanted)
    except SlotsError:
        raise
    except Exception as error:  # of many kinds, depending on the layer that failed
        first = (str(error).splitlines() or [""])[0]
        raise SlotsError(
            f"spark.remote {shown_remote(remote)} cannot run a job: {type(error).__name__}: {first}"
        ) from error
    finally:
        sessions.close()


def check_version(what: str, version: str) -> None:
    """Refuse a Spark that is older than `OLDEST`. `version` is as Spark reports it.

    Raises:
        SlotsError: names both versions.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise SlotsError(
            f"{what} is of version {version}, and Headgate needs {oldest} or newer. Use a newer one"
        )


def _overlapping(sessions: Sessions, wanted: int) -> int:
    rows = sessions.get().range(0, wanted, 1, wanted).selectExpr(*_HOLD).collect()
    return most_at_once([(int(row["begin"]), int(row["end"])) for row in rows])


def check_slots(remote: str, workers: int, tasks_max: Sequence[int], per_process: int = 1) -> None:
    """Refuse a Spark with too few free slots.

    Raises:
        SlotsError: names the numbers.
    """
    free = free_slots(remote, slots_wanted(workers, tasks_max, per_process))
    refusal = too_few(shown_remote(remote), free, workers, tasks_max, per_process)
    if refusal is not None:
        raise SlotsError(refusal)
