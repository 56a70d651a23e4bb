"""`headgate doctor` on a cluster on which no worker has been started yet."""

import io
from dataclasses import dataclass
from typing import Any

import pytest

from headgate_kafka.admin.permissions import (
    NO_TOPIC,
    Permission,
    ResourceKind,
    Tried,
    Verdict,
)
from headgate_kafka.admin.topics import InternalTopic, internal_topics
from headgate_runtime.command import doctor
from headgate_runtime.command.doctor import Check, Outcome, _on_kafka

WORKER = {
    "bootstrap.servers": "h:1",
    "group.id": "g",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
}


@dataclass
class Brokers:
    addresses: tuple[str, ...] = ("h:1",)
    cluster_id: str = "c"


class Doctor:
    """A cluster with some of the internal topics, whose worker may do anything."""

    def __init__(self, *there: str, faults: dict[str, str] | None = None) -> None:
        self.there = there
        self.faults = faults or {}

    def brokers(self) -> Brokers:
        return Brokers()

    def internal_topics(self) -> list[tuple[InternalTopic, str | None, bool]]:
        return [
            (each, self.faults.get(each.name), each.name in self.there)
            for each in internal_topics(WORKER)
        ]

    def worker_rights(self) -> list[Tried]:
        tried = [Tried(Permission("Read", ResourceKind.GROUP, "g", "to join"), Verdict.GRANTED)]
        for topic in ("configs", "offsets", "statuses"):
            for operation in ("Read", "Write", "DescribeConfigs"):
                wanted = Permission(operation, ResourceKind.TOPIC, topic, "to work")
                there = topic in self.there
                unknown = Tried(wanted, Verdict.UNKNOWN, NO_TOPIC)
                tried.append(Tried(wanted, Verdict.GRANTED) if there else unknown)
        return tried


def said_of(doctor: Any) -> list[Check]:
    return list(_on_kafka(doctor, WORKER))


def test_topics_that_the_first_start_makes_are_one_line() -> None:
    assert [(check.outcome, check.about, check.text) for check in said_of(Doctor())[1:]] == [
        (
            Outcome.GOOD,
            "internal topics",
            "offsets, statuses, configs: will be created at the first start",
        ),
        (
            Outcome.GOOD,
            "permissions of the worker",
            "1 of 1 are granted; 9 on topics that are not there yet cannot be tried "
            "(docs/run/permissions.md)",
        ),
    ]


def test_a_topic_that_is_there_is_told_apart() -> None:
    texts = [check.text for check in said_of(Doctor("configs"))]
    assert "configs: as workers need it" in texts
    assert "offsets, statuses: will be created at the first start" in texts
    assert any(text.startswith("4 of 4 are granted; 6 on topics") for text in texts)


def test_one_that_cannot_be_made_is_told_once() -> None:
    """The topic's permissions cannot be tried either, and three more notes once said so."""
    found = said_of(Doctor("configs", faults={"statuses": "it does not exist, and cannot be made"}))
    bad = [check.text for check in found if check.outcome is Outcome.BAD]
    assert bad == ["statuses: it does not exist, and cannot be made"]
    assert not [check.text for check in found if check.outcome is Outcome.NOTE]
    assert any("6 on topics that are not there yet" in check.text for check in found)


def test_a_check_is_one_line_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Check(Outcome.GOOD, "internal topics", "will be created " + "x" * 300)]
    monkeypatch.setattr(doctor, "checks", lambda _: iter(found))
    out = io.StringIO()
    assert doctor.run("w.properties", out) == 0
    assert len(out.getvalue().splitlines()) == 2


def test_what_is_denied_has_the_command_that_grants_it() -> None:
    wanted = Permission("Read", ResourceKind.GROUP, "g", "to join")
    tried = [Tried(wanted, Verdict.DENIED, grant="kafka-acls --add")]
    (line,) = doctor._permissions("permissions of the worker", lambda: tried)
    assert line.outcome is Outcome.BAD
    assert line.text.endswith("to join. Grant it with: kafka-acls --add")


def test_where_nothing_is_granted_nothing_is_ok() -> None:
    """A connector whose topic is not there yet was "ok: 0 of 1 are granted" below its note."""
    wanted = Permission("Write", ResourceKind.TOPIC, "t", "records of c")
    tried = [Tried(wanted, Verdict.UNKNOWN, NO_TOPIC)]
    (line,) = doctor._permissions("permissions of connector c", lambda: tried)
    assert (line.outcome, "not tried" in line.text) == (Outcome.NOTE, True)
