"""Where a connector's topics are administered, and with which login."""

from typing import Any, Literal

import pytest

from headgate_kafka.clients.roles import connector_admin_properties

WORKER = {"bootstrap.servers": "w:1", "security.protocol": "SSL", "ssl.keystore.location": "k"}
THERE = {"producer.override.bootstrap.servers": "p:1"}
LOGIN = {
    "producer.override.security.protocol": "SASL_PLAINTEXT",
    "producer.override.sasl.mechanism": "PLAIN",
}


def admin(
    config: dict[str, str], kind: Literal["source", "sink"] = "source", **worker: str
) -> dict[str, Any]:
    more = {key.replace("_", "."): value for key, value in worker.items()}
    found = connector_admin_properties({**WORKER, **more}, config, "c", kind, lambda _: None)
    wanted = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "ssl.keystore.location")
    return {key: found[key] for key in wanted if key in found}


AS_THE_PRODUCER = {
    "bootstrap.servers": "p:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
}


def test_as_the_worker_where_nothing_is_said() -> None:
    assert admin({}) == WORKER
    # A login without servers is the producer's alone, as in Connect.
    assert admin(LOGIN) == WORKER


@pytest.mark.parametrize("by_worker", [False, True])
def test_where_the_producer_writes_with_its_login(by_worker: bool) -> None:
    if by_worker:
        assert admin(LOGIN, producer_bootstrap_servers="p:1") == AS_THE_PRODUCER
    else:
        assert admin({**THERE, **LOGIN}) == AS_THE_PRODUCER


def test_what_is_said_of_the_admin_client_counts() -> None:
    own = {"admin.override.security.protocol": "PLAINTEXT"}
    found = admin({**THERE, **LOGIN, **own})
    assert (found["bootstrap.servers"], found["security.protocol"]) == ("p:1", "PLAINTEXT")
    assert admin({**THERE, **LOGIN, "admin.override.bootstrap.servers": "a:1"}) == {
        **WORKER,
        "bootstrap.servers": "a:1",
    }


def test_the_workers_login_where_the_producer_has_none() -> None:
    assert admin(THERE) == {**WORKER, "bootstrap.servers": "p:1"}
    assert admin({**THERE, **LOGIN}, kind="sink") == WORKER
