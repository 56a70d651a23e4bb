"""A Headgate worker and a Java worker are in one group, in every version of Connect's protocol.

Each of them is stopped and killed, as leader and as follower. The other takes over its work, and it
comes back. Records under exactly-once are there once, in order.
"""

import itertools
import time
from collections.abc import Iterable
from functools import partial

import pytest
from support.java.beside_java import (
    SECONDS,
    SETTINGS,
    Cluster,
    Kill,
    MakeHeadgate,
    MakeJava,
    check_nobody_ran_twice,
)
from support.java.mixed_group import AnyWorker
from support.kafka.cluster import await_true
from support.task.growing_file import GrowingFile

pytestmark = pytest.mark.slow

SPOKEN = {"sessioned": "sessioned", "compatible": "compatible", "eager": "default"}
"""Of `connect.protocol`: what a group of both kinds speaks."""
Going = tuple[str, str, str]
"""Who leads; which of the two goes, to come back as the follower; how."""
JAVA_FOLLOWS_TO_ITS_DEATH: tuple[Going, ...] = (
    ("java", "ours", "stop"),
    ("java", "java", "stop"),
    ("ours", "java", "kill"),
    ("ours", "ours", "kill"),
)
OURS_FOLLOWS_TO_ITS_DEATH: tuple[Going, ...] = (
    ("java", "ours", "kill"),
    ("java", "java", "kill"),
    ("ours", "java", "stop"),
    ("ours", "ours", "stop"),
)
FOLLOWERS_GO: tuple[Going, ...] = (
    ("java", "ours", "stop"),
    ("java", "ours", "kill"),
    ("java", "java", "stop"),
    ("ours", "java", "kill"),
    ("ours", "java", "stop"),
)
"""In the newest version leaders are stopped and killed in test_workers_beside_java."""
STORIES = {
    "compatible-1": JAVA_FOLLOWS_TO_ITS_DEATH,
    "compatible-2": OURS_FOLLOWS_TO_ITS_DEATH,
    "eager-1": JAVA_FOLLOWS_TO_ITS_DEATH,
    "eager-2": OURS_FOLLOWS_TO_ITS_DEATH,
    "sessioned-1": FOLLOWERS_GO,
}
"""By `connect.protocol`. The kind that leads first is the one that is started first."""


def goings(protocol: str) -> Iterable[Going]:
    return itertools.chain(
        *(rows for name, rows in STORIES.items() if name.startswith(f"{protocol}-"))
    )


def test_no_going_is_left_out() -> None:
    kinds = ("java", "ours")
    every = set(itertools.product(kinds, kinds, ("stop", "kill")))
    assert set(goings("compatible")) == set(goings("eager")) == every
    assert set(goings("sessioned")) >= {
        (leads, goes, how) for leads, goes, how in every if leads != goes
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", STORIES)
def test_each_comes_and_goes(
    story: str,
    cluster: Cluster,
    growing: GrowingFile,
    java_worker: MakeJava,
    headgate_worker: MakeHeadgate,
) -> None:
    """Exactly-once tasks too: it asks for no protocol, and internal calls are unsigned in the older
    ones."""
    protocol = story.partition("-")[0]
    settings = {
        **SETTINGS,
        "connect.protocol": protocol,
        "task.shutdown.graceful.timeout.ms": "2000",
    }
    workers: dict[str, AnyWorker] = {
        "java": java_worker(cluster.address, cluster.group, settings),
        "ours": headgate_worker(cluster.address, cluster.group, settings),
    }
    cluster.create(workers["ours"])
    cluster.more(workers["java"])
    killed: list[Kill] = []
    rows = STORIES[story]
    for number, (leads, goes, how) in enumerate(rows, 1):
        [stays] = set(workers) - {goes}
        going, staying = workers[goes], workers[stays]
        await_true("two members", lambda: cluster.members() == 2, SECONDS)
        await_true("leader", lambda url=workers[leads].url: cluster.leader() == url, SECONDS)
        assert cluster.protocol() == SPOKEN[protocol]
        cluster.grows(staying, f"under leader {leads}")
        cluster.await_spread(staying)
        if how == "stop":
            going.stop()
        else:
            going.kill()
            killed.append((going.url, time.time()))
        await_true("one member", lambda: cluster.members() == 1, SECONDS)
        await_true("all work", partial(cluster.runs_all, staying), SECONDS)
        cluster.settled(staying)
        cluster.grows(staying, f"without {goes}")
        assert cluster.protocol() == spoken_alone(protocol, stays)
        cluster.reconfigure(staying, number)
        if number < len(rows):
            going.start()
    # Java stops every task for an eager round; one that has only begun to start does not end within
    # the grace there, is cancelled and does not say that it let go. The topics tell all the same.
    if protocol != "eager":
        check_nobody_ran_twice(cluster, killed)
    lines = growing.stop()
    cluster.check(staying, lines)
    cluster.check_more(staying, lines)


def spoken_alone(protocol: str, kind: str) -> str:
    """Ours speak a protocol of their own among themselves, where they may offer all."""
    return "headgate" if (protocol, kind) == ("sessioned", "ours") else SPOKEN[protocol]
