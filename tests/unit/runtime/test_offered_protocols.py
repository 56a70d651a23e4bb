"""A worker's file decides which protocols it offers to its group."""

import pytest

from headgate_runtime.config.parsers import CONNECT_PROTOCOLS
from headgate_runtime.config.settings import DISTRIBUTED, WorkerSettings
from headgate_runtime.worker.config import WorkerConfig, herder_settings

STRING = "org.apache.kafka.connect.storage.StringConverter"
REQUIRED = {
    "bootstrap.servers": "localhost:9092",
    "group.id": "g",
    "key.converter": STRING,
    "value.converter": STRING,
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
}
OFFERED = {
    None: ("headgate", "sessioned", "compatible", "default"),
    "sessioned": ("headgate", "sessioned", "compatible", "default"),
    "cooperative": ("headgate", "sessioned", "compatible", "default"),
    "compatible": ("compatible", "default"),
    "eager": ("default",),
}
"""By `connect.protocol`: a broker chooses the first that all members offer."""


def offered(limit: str | None, transport: str) -> tuple[str, ...]:
    limited = {} if limit is None else {"connect.protocol": limit}
    settings = WorkerSettings.parse({**REQUIRED, **limited}, DISTRIBUTED)
    config = WorkerConfig("w", "http://w", {"kind": transport})
    return herder_settings(config, settings).protocols


@pytest.mark.parametrize("limit", OFFERED)
def test_javas_protocols_are_offered_as_far_as_the_limit(limit: str | None) -> None:
    assert offered(limit, "kafka") == OFFERED[limit]


@pytest.mark.parametrize("limit", CONNECT_PROTOCOLS)
def test_where_no_java_worker_can_be_only_ours_is_offered(limit: str) -> None:
    assert offered(limit, "embedded") == ("headgate",)


def test_every_limit_that_there_is() -> None:
    assert {*CONNECT_PROTOCOLS} < {*OFFERED}
