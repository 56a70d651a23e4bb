"""`headgate observe` as its user calls it, and a check that it leaves a cluster unchanged."""

import json
import subprocess
from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from support.commands.worker import headgate

T = TypeVar("T")
LOOKS: Final = 5


def observe(*options: str) -> "subprocess.CompletedProcess[str]":
    return headgate("observe", *options)


def observed(*options: str) -> Any:
    """Return the JSON that `headgate observe` prints with these options and ``--json``."""
    done = observe(*options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def everything(address: str) -> dict[str, Any]:
    """Return the end offset of each partition of each topic of a cluster, and the state of each
    group.

    The brokers' own topics are included: there a group leaves a trace of each client that joins or
    commits.
    """
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    topics = admin.list_topics(timeout=20).topics
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {TopicPartition(name, n): latest for name in topics for n in topics[name].partitions}
    ends = {
        f"{place.topic}-{place.partition}": asked.result(20).offset
        for place, asked in admin.list_offsets(places, request_timeout=20).items()
    }
    listed = admin.list_consumer_groups(request_timeout=20).result(20)
    assert not listed.errors
    return {**ends, **{f"group {one.group_id}": one.state for one in listed.valid}}


def changing_nothing(address: str, look: Callable[[], T]) -> T:
    """Return what `look` returns, once the cluster is the same before and after it.

    Other clients may change the cluster meanwhile, so `look` is called up to `LOOKS` times. Raises
    AssertionError if there was a change each time.
    """
    changes: list[object] = []
    for _ in range(LOOKS):
        before = everything(address)
        seen = look()
        after = everything(address)
        if before == after:
            return seen
        changes.append(dict(before.items() ^ after.items()))
    raise AssertionError(f"something has changed each time: {changes}")
