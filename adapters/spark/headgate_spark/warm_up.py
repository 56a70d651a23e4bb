"""The first job of a Spark, so that the first task does not wait for what it loads.

Run it as ``python -m headgate_spark.warm_up``, with the address of the server as a line of stdin.
The address has a token, and all users of the machine can read arguments. It is a process of its
own, because Spark's client takes 150 MiB that are not needed later.
"""

import sys
from collections.abc import Iterator
from typing import Any

from headgate_spark.sessions import Sessions
from headgate_spark.skin import on_executors


def nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """Return the batches as they are. Running it makes the executor start the process that forks
    tasks."""
    yield from batches


def warm_up(remote: str) -> None:
    """Run a job of one empty task in the session that tasks share. Raises as Spark's client
    does."""
    sessions = Sessions(remote, shared=True)
    try:
        session = sessions.get()
        session.range(0, 1, 1, 1).mapInArrow(on_executors(nothing), "id long").collect()
    finally:
        sessions.close()


if __name__ == "__main__":
    # Executors look functions up by their modules, and this module is called __main__ here.
    from headgate_spark import warm_up as found

    found.warm_up(sys.stdin.readline().strip())
