"""Overrides of client settings in connector configs are checked by the policy and by their
values."""

import pytest

from headgate.connector.api import Connector
from headgate_connectors.file_stream import FileStreamSource
from headgate_connectors.file_stream_sink import FileStreamSink
from headgate_runtime.config.client_overrides import client_override_errors
from headgate_runtime.config.properties import parse_properties
from headgate_runtime.config.settings import DISTRIBUTED, WorkerSettings
from headgate_runtime.config.worker_file import check_worker_file
from headgate_runtime.plugins.validation import config_error

FILE = """\
bootstrap.servers=localhost:9092
group.id=g
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
"""
POLICY = "connector.client.config.override.policy"
EXACTLY_ONCE = "exactly.once.source.support=enabled\n"


def settings(more: str = "") -> WorkerSettings:
    return check_worker_file(parse_properties(FILE + more, "f"), DISTRIBUTED).settings


@pytest.mark.parametrize(
    ("connector", "more", "config", "wrong"),
    [
        (FileStreamSource, "", {"producer.override.linger.ms": "1"}, {}),
        (
            FileStreamSource,
            "",
            {"producer.override.linger.ms": "abc"},
            {"producer.override.linger.ms": "not a whole number"},
        ),
        (FileStreamSource, "", {"consumer.override.fetch.min.bytes": "abc"}, {}),
        (FileStreamSource, "", {"producer.override.bootstrap.servers": "SSL://a:1"}, {}),
        (
            FileStreamSource,
            "",
            {"producer.override.bootstrap.servers": "http://a:1"},
            {"producer.override.bootstrap.servers": "begins with none of Kafka's protocols"},
        ),
        (
            FileStreamSource,
            EXACTLY_ONCE,
            {"consumer.override.fetch.min.bytes": "abc"},
            {"consumer.override.fetch.min.bytes": "not a whole number"},
        ),
        (
            FileStreamSource,
            f"{POLICY}=None\n",
            {"producer.override.linger.ms": "1", "admin.override.client.id": "a"},
            {"producer.override.linger.ms": "The 'None' policy does not allow 'linger.ms'"},
        ),
        (
            FileStreamSink,
            f"{POLICY}=Principal\n",
            {"consumer.override.sasl.mechanism": "PLAIN", "consumer.override.group.id": "x"},
            {"consumer.override.group.id": "The 'Principal' policy"},
        ),
        (
            FileStreamSink,
            f"{POLICY}=Allowlist\nconnector.client.config.override.allowlist=group.id\n",
            {
                "errors.deadletterqueue.topic.name": "letters",
                "consumer.override.group.id": "x",
                "producer.override.acks": "all",
            },
            {"producer.override.acks": "The 'Allowlist' policy"},
        ),
        (FileStreamSink, "", {"consumer.override.security.protocol": "SASL_SSL"}, {}),
        (
            FileStreamSource,
            "",
            {"producer.override.compression.type": "foo", "producer.override.debug": "bar"},
            {
                "producer.override.compression.type": "'foo' is none of none, gzip",
                "producer.override.debug": "'bar' is refused by librdkafka",
            },
        ),
        (FileStreamSource, "", {"producer.override.acks": "1"}, {}),
        (
            FileStreamSource,
            EXACTLY_ONCE,
            {"producer.override.acks": "1"},
            {"producer.override.acks": "`acks` must be set to `all`"},
        ),
        (FileStreamSource, EXACTLY_ONCE, {"producer.override.linger.ms": "100000"}, {}),
        (
            FileStreamSource,
            "",
            {"producer.override.enable.idempotence": "true", "producer.override.acks": "1"},
            {"producer.override.acks": "`acks` must be set to `all`"},
        ),
        (
            FileStreamSink,
            EXACTLY_ONCE,
            {
                "errors.deadletterqueue.topic.name": "letters",
                "producer.override.acks": "1",
                "admin.override.client.dns.lookup": "nonsense",
            },
            {"admin.override.client.dns.lookup": "is none of use_all_dns_ips, resolve"},
        ),
        (
            FileStreamSink,
            "",
            {
                "consumer.override.group.protocol": "consumer",
                "consumer.override.session.timeout.ms": "9000",
            },
            {"consumer.override.group.protocol": "`session.timeout.ms` is not supported"},
        ),
        (
            FileStreamSink,
            "",
            {"consumer.override.group.id": ""},
            {"consumer.override.group.id": "is empty"},
        ),
    ],
)
def test_errors(
    connector: type[Connector], more: str, config: dict[str, str], wrong: dict[str, str]
) -> None:
    found = client_override_errors(connector, config, settings(more))
    assert found.keys() == wrong.keys()
    for key, text in wrong.items():
        assert text in found[key]


def test_they_are_part_of_connects_answer() -> None:
    config = {
        "connector.class": "FileStreamSource",
        "topic": "t",
        "file": "f",
        "producer.override.linger.ms": "1",
    }
    assert config_error("c", config, settings()) is None
    said = config_error("c", config, settings(f"{POLICY}=None\n"))
    assert said is not None
    assert (
        "contains the following 1 error(s):\nThe 'None' policy does not allow 'linger.ms' to be "
        "overridden in the connector configuration.\n" in said
    )


def test_without_kafka_nobody_looks() -> None:
    pipeline = WorkerSettings.parse({})
    assert client_override_errors(FileStreamSource, {"producer.override.acks": "?"}, pipeline) == {}
