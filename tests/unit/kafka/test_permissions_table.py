"""`headgate doctor` tries what the tables of ``docs/run/permissions.md`` list."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from headgate_kafka.admin.permissions import (
    TASKS_TRIED,
    Permission,
    consumer_permissions,
    producer_permissions,
    reader_permissions,
    sink_admin_permissions,
    source_admin_permissions,
    worker_permissions,
)

TABLES: Final = Path(__file__).parents[3] / "docs/run/permissions.md"
WORKER: Final = {
    "group.id": "workers",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
    "exactly.once.source.support": "enabled",
}
INTERNAL: Final = ("Topic:configs", "Topic:offsets", "Topic:statuses")
ID: Final = "`${group.id}-${connector}-${task}`"
RESOURCES: Final[dict[str, tuple[str, ...]]] = {
    "Group: `group.id`": ("Group:workers",),
    "Topic: `config.storage.topic`, `offset.storage.topic`, `status.storage.topic`": INTERNAL,
    "these topics": INTERNAL,
    "TransactionalId: `connect-cluster-${group.id}`": ("TransactionalId:connect-cluster-workers",),
    "its data topics": ("Topic:data",),
    "its own offsets topic": ("Topic:own",),
    "Topic: its own offsets topic": ("Topic:own",),
    "Topic: its own offsets topic (`offsets.storage.topic`, or implied by another cluster), else "
    "the worker's `offset.storage.topic`": ("Topic:own", "Topic:offsets"),
    f"TransactionalId: {ID} of every task; as a rule, prefixed `${{group.id}}-${{connector}}-`": (
        "TransactionalId:workers-c-0",
    ),
    "Group: `connect-${connector}`, or `consumer.override.group.id`": ("Group:connect-c",),
    "its topics; of `topics.regex` those that match": ("Topic:data",),
    "the same group, its topics": ("Group:connect-c", "Topic:data"),
    "the same group": ("Group:connect-c",),
}
"""What cells of the tables stand for in the examples here."""
HEADS: Final = ("client", "operation", "---")
Row = tuple[str, str]
"""Whose right it is, and the right."""


def of(who: str, permissions: Iterable[Permission]) -> Iterator[Row]:
    return ((who, str(each)) for each in permissions)


def tried() -> dict[str, set[Row]]:
    source, sink = {"topic": "data"}, {"topics": "data"}
    names: Callable[[], list[str]] = list
    return {
        "A worker": {*of("worker", worker_permissions(WORKER))},
        "A source connector": {
            *of("producer", producer_permissions(WORKER, "c", source, 1, "own")),
            *of("producer", producer_permissions(WORKER, "c", source, 1, None)),
            *of("offsets reader", reader_permissions("c", "own")),
            *of("admin client", source_admin_permissions(WORKER, "c", 1, "own")),
        },
        "A sink connector": {
            *of("consumer", consumer_permissions(WORKER, "c", sink, names)),
            *of("admin client", sink_admin_permissions(WORKER, "c", sink, names)),
        },
    }


def written() -> dict[str, set[Row]]:
    """Return the permissions in the tables, without Create. `headgate_kafka.admin.doctor` asks for
    that if a topic is missing."""
    found: dict[str, set[Row]] = {}
    section = ""
    for line in TABLES.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        width = 3 if section == "A worker" else 4
        if not line.startswith("|") or len(cells) != width or cells[0] in HEADS:
            continue
        who = "worker" if section == "A worker" else cells.pop(0)
        operations, resource = cells[0].split(", "), cells[1]
        if operations != ["Create"]:
            found.setdefault(section, set()).update(
                (one, f"{operation} on {name}")
                for one in who.split(", ")
                for operation in operations
                for name in RESOURCES[resource]
            )
    return found


def test_what_is_tried_is_in_the_tables_and_the_other_way_round() -> None:
    assert written() == tried()


def test_so_many_ids_are_tried_as_the_text_says() -> None:
    said = "more than 1,000 tasks, the doctor tries the ids of the first 999 and of the last one"
    assert said in re.sub(r"\s+", " ", TABLES.read_text())
    assert TASKS_TRIED == 1_000


@pytest.mark.parametrize("count", [1, TASKS_TRIED, TASKS_TRIED + 1, 2**31 - 1])
def test_of_very_many_tasks_the_first_and_the_last_are_tried(count: int) -> None:
    for found in (
        producer_permissions(WORKER, "c", {}, count, None),
        source_admin_permissions(WORKER, "c", count, None),
    ):
        ids = [one.name for one in found if str(one).startswith("Write on TransactionalId")]
        assert len(ids) == min(count, TASKS_TRIED)
        assert (ids[0], ids[-1]) == ("workers-c-0", f"workers-c-{count - 1}")


@pytest.mark.parametrize("planned", [False, True])
def test_who_plans_batches_cannot_do_without_what_is_for_calls_else(planned: bool) -> None:
    found = sink_admin_permissions(WORKER, "c", {"topics": "data"}, list, planned=planned)
    assert [str(one) for one in found if one.optional] == [
        *([] if planned else [str(one) for one in found[:-1]]),
        "Delete on Group:connect-c",
    ]
