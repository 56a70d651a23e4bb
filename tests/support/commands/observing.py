"""`headgate observe` as its user calls it, and that it leaves a cluster as it was."""

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
    """What it shows with ``--json``."""
    done = observe(*options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def everything(address: str) -> dict[str, Any]:
    """Of a cluster: where each partition of each topic ends, the brokers' own included, in which a
    group leaves a trace of everybody who joins or commits; and each group's state."""
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
    """What `look` sees. It is let look again where something has changed meanwhile: others may have
    been at work. Raises AssertionError if that is so each time."""
    changes: list[object] = []
    for _ in range(LOOKS):
        before = everything(address)
        seen = look()
        after = everything(address)
        if before == after:
            return seen
        changes.append(dict(before.items() ^ after.items()))
    raise AssertionError(f"something has changed each time: {changes}")
