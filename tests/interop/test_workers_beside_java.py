"""Headgate's and Java's workers are in one group while leadership moves, by leaves and by kills.
Records under exactly-once are there once, in order."""

import time
from functools import partial

import pytest
from support.java.beside_java import (
    SECONDS,
    SETTINGS,
    SOURCES,
    Cluster,
    Kill,
    MakeHeadgate,
    MakeJava,
    check_nobody_ran_twice,
)
from support.java.mixed_group import AnyWorker
from support.kafka.cluster import await_true
from support.task.growing_file import GrowingFile

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

LEADERSHIP_MOVES = 5
LEADERS_KILLED = 3


def test_leadership_moves_between_java_and_ours_while_records_flow(
    cluster: Cluster,
    growing: GrowingFile,
    java_worker: MakeJava,
    headgate_worker: MakeHeadgate,
) -> None:
    java = java_worker(cluster.address, cluster.group, SETTINGS)
    ours = headgate_worker(cluster.address, cluster.group, SETTINGS)
    cluster.create(java)
    cluster.settled(ours)
    workers: dict[str, AnyWorker] = {java.url: java, ours.url: ours}
    cluster.more(ours)
    moves = 0
    led_and_ran: set[tuple[str, str]] = set()
    while moves < LEADERSHIP_MOVES:
        await_true("two members", lambda: cluster.members() == 2, SECONDS)
        leader = cluster.await_leader()
        leading = workers[leader]
        (following,) = (worker for url, worker in workers.items() if url != leader)
        cluster.grows(following, f"under leader {leader}")
        cluster.await_spread(following)
        led_and_ran |= {(leader, owner) for owner in cluster.owners(following, *SOURCES)}
        leading.stop()
        await_true("other leader", lambda other=following: cluster.leader() == other.url, SECONDS)
        moves += 1
        cluster.settled(following)
        cluster.grows(following, f"after move {moves}, alone")
        leading.start()
        # Either can be asked, about what either does.
        assert leading.rest.get("/connectors").status == 200
    await_true("two members", lambda: cluster.members() == 2, SECONDS)
    cluster.settled(java)
    assert cluster.states(java) == cluster.states(ours)
    lines = growing.stop()
    cluster.check(java, lines)
    cluster.check_more(java, lines)
    # Exactly-once tasks of each were started under the fence of the other, too.
    assert {(ours.url, java.url), (java.url, ours.url)} <= led_and_ran


def test_leaders_are_killed_while_records_flow(
    cluster: Cluster,
    growing: GrowingFile,
    java_worker: MakeJava,
    headgate_worker: MakeHeadgate,
) -> None:
    """Ours under a Java follower, Java's under a follower of ours, and ours again, whose cluster
    was Java's and ours before. A new worker joins each time."""
    ours = headgate_worker(cluster.address, cluster.group, SETTINGS)
    await_true("leader", lambda: cluster.leader() == ours.url, SECONDS)
    java = java_worker(cluster.address, cluster.group, SETTINGS)
    cluster.create(ours)
    cluster.more(java)
    leading: AnyWorker = ours
    following: AnyWorker = java
    killed: list[Kill] = []
    while len(killed) < LEADERS_KILLED:
        await_true("two members", lambda: cluster.members() == 2, SECONDS)
        await_true("leader", lambda url=leading.url: cluster.leader() == url, SECONDS)
        cluster.grows(following, f"under leader {leading.url}")
        # A source of the follower was fenced for by the leader, which heard so from the other kind.
        cluster.await_spread(following)
        leading.kill()
        killed.append((leading.url, time.time()))
        await_true("other leader", lambda other=following: cluster.leader() == other.url, SECONDS)
        await_true("all work", partial(cluster.runs_all, following), SECONDS)
        cluster.settled(following)
        cluster.grows(following, f"after kill {len(killed)}, alone")
        cluster.reconfigure(following, len(killed))
        if leading is java:
            java.start()
            leading, following = following, java
        else:
            new = headgate_worker(cluster.address, cluster.group, SETTINGS)
            leading, following = following, new
    await_true("two members", lambda: cluster.members() == 2, SECONDS)
    cluster.await_spread(following)
    cluster.settled(leading)
    assert cluster.states(leading) == cluster.states(following)
    check_nobody_ran_twice(cluster, killed)
    lines = growing.stop()
    cluster.check(leading, lines)
    cluster.check_more(leading, lines)
