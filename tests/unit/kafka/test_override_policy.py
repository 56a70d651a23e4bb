"""Connect's policies say which client settings connectors may override."""

import pytest

from headgate_kafka.clients.override_policy import override_errors

CONFIG = {
    "name": "c",
    "producer.override.linger.ms": "1",
    "consumer.override.sasl.mechanism": "PLAIN",
    "admin.override.client.id": "a",
}


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ("All", []),
        ("None", ["linger.ms", "sasl.mechanism", "client.id"]),
        ("Principal", ["linger.ms", "client.id"]),
        ("Allowlist", ["sasl.mechanism", "client.id"]),
    ],
)
def test_policies(policy: str, refused: list[str]) -> None:
    assert list(override_errors(policy, CONFIG, frozenset({"linger.ms"})).values()) == [
        f"The '{policy}' policy does not allow '{key}' to be overridden in the connector "
        "configuration."
        for key in refused
    ]
