"""Which rights brokers are asked about, and what their answers mean."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from headgate_kafka.admin.doctor import PLANNED_SINK, KafkaDoctor
from headgate_kafka.admin.permissions import NO_GROUP, Permission, ResourceKind, Rights, Verdict
from headgate_kafka.group.describe import DescribedGroup
from headgate_kafka.login.logins import Role
from headgate_kafka.login.principal import grant

WORKER = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "workers",
    "offset.storage.topic": "offsets",
}


def on_group(operation: str, *, optional: bool = False) -> Permission:
    return Permission(operation, ResourceKind.GROUP, "g", "a purpose", optional)


CONTACT = SimpleNamespace(principal="User:a b", servers="h:1,h:2")


def asked(*wanted: Permission, refused: str | None = None) -> list[tuple[Verdict, str]]:
    """Return the verdicts on a group that does not exist. The user may describe it, or `refused` is
    the broker's answer."""
    absent = DescribedGroup("g", "Dead", "", "", (), "h:9092")
    unused: Any = None
    topics: Any = SimpleNamespace(contact=CONTACT)
    rights = Rights(topics, lambda _: absent, lambda _: refused, unused, unused)
    return [(one.verdict, one.reason) for one in rights.try_all(wanted)]


def test_of_a_group_that_is_not_there_each_right_is_told_as_far_as_it_can_be() -> None:
    wanted = [on_group(operation) for operation in ("Describe", "Read", "Delete")]
    described, unknown = (Verdict.GRANTED, ""), (Verdict.UNKNOWN, NO_GROUP)
    assert asked(*wanted) == [described, (Verdict.GRANTED, ""), unknown]
    assert asked(*wanted, refused="no") == [described, (Verdict.DENIED, "no"), unknown]


@pytest.mark.parametrize("first", [False, True])
def test_a_right_that_two_need_is_tried_once_for_who_cannot_do_without_it(first: bool) -> None:
    unused: Any = None
    topics: Any = SimpleNamespace(contact=CONTACT)
    rights = Rights(topics, pytest.fail, lambda _: "no", unused, unused)
    rights._allowed[ResourceKind.GROUP, "g"] = frozenset()
    both = [on_group("Read", optional=first), on_group("Read", optional=not first)]
    assert [one.permission.optional for one in rights.try_all(both)] == [False]


def test_what_is_denied_has_the_command_that_grants_it() -> None:
    topics: Any = SimpleNamespace(contact=CONTACT)
    unused: Any = None
    rights = Rights(topics, unused, unused, lambda _: "no", None)
    kind = ResourceKind.TRANSACTIONAL_ID
    [denied, untried] = rights.try_all(
        [Permission(operation, kind, "w-c-0", "") for operation in ("Describe", "Write")]
    )
    assert denied.grant == (
        "kafka-acls --bootstrap-server h:1,h:2 --add --allow-principal 'User:a b' "
        "--operation Describe --transactional-id w-c-0"
    )
    assert not untried.grant
    tokens = grant("the principal that logs in by OAUTHBEARER", "Read", "Topic", "t", "h:1")
    assert "--allow-principal User:... --operation Read --topic t" in tokens


@pytest.mark.parametrize("kind", ["sink", PLANNED_SINK])
def test_who_plans_batches_needs_its_admin_client_for_them(kind: str) -> None:
    doctor = KafkaDoctor(WORKER, lambda _line: None)
    try:
        # Its admin client goes elsewhere, so that it is told apart.
        config = {"topics": "t", "admin.override.bootstrap.servers": "127.0.0.1:2"}
        [_, (_, ask)] = doctor.connector_rights("s", config, kind, 1, 1)
        assert isinstance(ask, partial)
        login, needed = ask.args
        assert login.roles == (Role.ADMIN,)
        topics = SimpleNamespace(names=list)
        found = {str(one): one.optional for one in needed(Role.ADMIN, topics)}
        assert found["Read on Topic:t"] is found["Describe on Group:connect-s"] is (kind == "sink")
    finally:
        doctor.close()
