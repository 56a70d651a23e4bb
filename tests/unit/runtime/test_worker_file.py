"""`headgate worker` reads an ordinary connect-distributed.properties, and reports faults in bad
ones."""

import re

import pytest

from headgate_runtime.config.properties import parse_properties
from headgate_runtime.config.settings import DISTRIBUTED, KEYS, STANDALONE
from headgate_runtime.config.worker_file import WorkerFile, WorkerFileError, check_worker_file

ORDINARY = """\
bootstrap.servers=localhost:9092, other:9092
group.id=connect-cluster
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
config.storage.topic=connect-configs
status.storage.topic=connect-status
status.storage.min.insync.replicas=2
offset.flush.interval.ms=10000
"""
ALONE = """\
bootstrap.servers=localhost:9092
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename=/tmp/connect.offsets
"""


def check(more: str = "", base: str = ORDINARY, kind: str = DISTRIBUTED) -> WorkerFile:
    return check_worker_file(parse_properties(base + more, "w.properties"), kind)


def problems(more: str, base: str = ORDINARY, kind: str = DISTRIBUTED) -> tuple[str, ...]:
    with pytest.raises(WorkerFileError) as caught:
        check(more, base, kind)
    return caught.value.problems


def test_an_ordinary_file() -> None:
    found = check()
    assert found.warnings == ()
    assert found.settings["bootstrap.servers"] == ("localhost:9092", "other:9092")
    assert found.settings["listeners"] == ("http://:8083",)
    assert found.settings["scheduled.rebalance.max.delay.ms"] == 300_000
    assert found.settings["headgate.task.runner"] == "spark"
    assert found.settings.texts["key.converter.schemas.enable"] == "false"
    assert found.properties["status.storage.min.insync.replicas"] == "2"
    assert "bogus" not in found.settings.texts


def test_what_is_not_used_is_named_once() -> None:
    found = check(
        "plugin.path=/opt\nmetric.reporters=x\nproducer.buffer.memory=1\nbogus=2\n"
        "config.storage.partitions=3\nproducer.linger.ms=5\nsecurity.protocol=PLAINTEXT\n"
        "admin.listeners.https.ssl.key.password=x\n"
        "ssl.client.auth=required\nssl.keystore.location=worker.pem\n"
    )
    assert found.warnings == (
        "w.properties: these keys are not used here: bogus, config.storage.partitions, "
        "metric.reporters, plugin.path, producer.buffer.memory",
    )
    assert found.properties["producer.linger.ms"] == "5"


def test_what_is_misspelt_is_told_apart_from_what_is_not_used() -> None:
    found = check(
        "ofset.flush.interval.ms=1\nsession.timeout=1\nsecurty.protocol=SSL\n"
        "offset.flush.timeout.ms=1\nrest.port=1\nbogus=1\nmetadata.max.idle.ms=1\n"
    )
    assert found.warnings == (
        "w.properties: unknown, and not used: "
        "ofset.flush.interval.ms (did you mean offset.flush.interval.ms?), "
        "securty.protocol (did you mean security.protocol?), "
        "session.timeout (did you mean session.timeout.ms?)",
        "w.properties: these keys are not used here: bogus, metadata.max.idle.ms, "
        "offset.flush.timeout.ms, rest.port",
    )


def test_what_is_only_understood_in_connectors_is_not_suggested() -> None:
    """The key belongs to the worker's own group client. It would be suggested in place of
    itself."""
    assert check("group.instance.id=x\ngroup.instance.ids=x\n").warnings == (
        "w.properties: these keys are not used here: group.instance.id, group.instance.ids",
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "headgate.task.runer=thread",
            "headgate.task.runer: unknown key; did you mean headgate.task.runner?",
        ),
        ("ssl.client.auth=yes", "'yes' is none of none, requested, required"),
        ("headgate.dta=1", "headgate.dta: unknown key; did you mean headgate.data?"),
        ("headgate.foo=1", "headgate.foo: unknown key; there are headgate.assignment.policy, head"),
        (
            "headgate.task.runner=sprak",
            "'sprak' is none of spark, process, thread; did you mean spark?",
        ),
        ("exactly.once.source.support=enable", "did you mean enabled?"),
        ("connect.protocol=coop", "'coop' is none of eager, compatible, sessioned"),
        ("session.timeout.ms=soon", "session.timeout.ms: 'soon' is not a whole number"),
        ("worker.sync.timeout.ms=3_000", "'3_000' is not a whole number"),
        (
            "scheduled.rebalance.max.delay.ms=2147483648",
            "2147483648 is above the greatest value, 2147483647",
        ),
        ("scheduled.rebalance.max.delay.ms=-1", "-1 is below the least value, 0"),
        ("rest.advertised.port=2147483648", "is above the greatest value, 2147483647"),
        ("offset.storage.partitions=0", "expected a positive number, or -1"),
        ("offset.storage.partitions=2147483648", "is above the greatest value, 2147483647"),
        ("offset.storage.replication.factor=32768", "is above the greatest value, 32767"),
        (
            "offset.flush.interval.ms=9223372036854775808",
            "9223372036854775808 is above the greatest value, 9223372036854775807",
        ),
        ("bootstrap.servers=localhost", "'localhost' is no host:port, such as localhost:9092"),
        ("bootstrap.servers=a:9092,:9093", "':9093' is no host:port"),
        ("bootstrap.servers=PLAINTEXT://:9093", "'PLAINTEXT://:9093' is no host:port"),
        (
            "bootstrap.servers=a:9092,http://b:9092",
            "bootstrap.servers: 'http://b:9092' begins with none of Kafka's protocols, PLAINTEXT, ",
        ),
        (
            "producer.bootstrap.servers=http://b:9092",
            "producer.bootstrap.servers: 'http://b:9092' begins with none of Kafka's protocols",
        ),
        (
            "status.storage.topic=connect-offsets",
            "status.storage.topic: 'connect-offsets' is offset.storage.topic too; each needs",
        ),
        (
            "offset.storage.topic=connect-configs",
            "offset.storage.topic: 'connect-configs' is config.storage.topic too; each needs",
        ),
        (
            "value.converter=org.apache.kafka.connect.storage.StrngConverter",
            "StrngConverter could not be found. Did you mean "
            "org.apache.kafka.connect.storage.StringConverter?",
        ),
        ("key.converter=x", "Class x could not be found. There are io.confluent.connect."),
        ("header.converter=com.acme.Headers", "Class com.acme.Headers could not be found."),
        ("config.providers=file", "config.providers.file.class: the provider's class is missing"),
        ("heartbeat.interval.ms=10000", "must be less than session.timeout.ms, 10000"),
        ("inter.worker.signature.algorithm=HmacSHA512", "must contain inter.worker.signature"),
        ("connector.client.config.override.policy=Some", "none of All, None, Principal"),
        ("exactly.once.source.enabled=yes", "neither true nor false"),
        (
            "exactly.once.source.enabled=true\nexactly.once.source.support=preparing",
            "give that one alone",
        ),
    ],
)
def test_bad_lines(line: str, problem: str) -> None:
    (found,) = problems(line)
    assert re.match(r"w\.properties(:\d+)?: ", found)
    assert problem in found


@pytest.mark.parametrize("kind", [DISTRIBUTED, STANDALONE])
def test_a_pipeline_file_is_told_as_such(kind: str) -> None:
    with pytest.raises(WorkerFileError) as caught:
        check_worker_file(parse_properties("[cluster]\nworkers = 1\n", "p.toml"), kind)
    assert caught.value.problems == (
        "p.toml: looks like a pipeline file, expected a worker's properties; "
        "headgate up p.toml runs a pipeline",
    )


def test_all_faults_at_once_in_the_order_of_the_file() -> None:
    found = problems(
        "headgate.a=1\nsession.timeout.ms=x\n", ORDINARY.replace("group.id", "groupid")
    )
    assert [line.partition(": ")[0] for line in found] == [
        "w.properties",
        "w.properties:12",
        "w.properties:13",
    ]
    assert found[0].endswith(
        'group.id: Missing required configuration "group.id" which has no default value. '
        "Is groupid meant for it?"
    )


@pytest.mark.parametrize("key", [name for name, key in KEYS.items() if DISTRIBUTED in key.required])
def test_required_as_in_connect(key: str) -> None:
    base = "".join(line for line in ORDINARY.splitlines(True) if not line.startswith(f"{key}="))
    (found,) = problems("", base)
    assert found == (
        f'w.properties: {key}: Missing required configuration "{key}" which has no default value.'
    )


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("connect.protocol=cooperative", "connect.protocol", "sessioned"),
        ("exactly.once.source.enabled=true", "exactly.once.source.support", "enabled"),
        ("exactly.once.source.enabled=FALSE", "exactly.once.source.support", "disabled"),
    ],
)
def test_older_words(line: str, key: str, value: str) -> None:
    found = check(line)
    assert found.settings[key] == found.settings.texts[key] == value
    assert len(found.warnings) == 1


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("exactly.once.source.support=ENABLED", "exactly.once.source.support", "enabled"),
        (
            "connector.client.config.override.policy=org.apache.kafka.connect.connector.policy."
            "NoneConnectorClientConfigOverridePolicy",
            "connector.client.config.override.policy",
            "None",
        ),
        ("inter.worker.key.size=", "inter.worker.key.size", None),
        ("worker.sync.timeout.ms=2147483647", "worker.sync.timeout.ms", 2**31 - 1),
        ("offset.flush.interval.ms=9223372036854775807", "offset.flush.interval.ms", 2**63 - 1),
        (
            "bootstrap.servers=SASL_SSL://a:1,plaintext://b:2,SSL://[::1]:3,SASL_PLAINTEXT://c:4",
            "bootstrap.servers",
            ("SASL_SSL://a:1", "plaintext://b:2", "SSL://[::1]:3", "SASL_PLAINTEXT://c:4"),
        ),
        ("topic.tracking.enable=False", "topic.tracking.enable", False),
        ("listeners=http://a:1,https://b:2", "listeners", ("http://a:1", "https://b:2")),
    ],
)
def test_values(line: str, key: str, value: object) -> None:
    assert check(line).settings[key] == value


def test_standalone() -> None:
    assert check("", ALONE, STANDALONE).settings["offset.storage.file.filename"]
    (missing,) = problems("", ALONE.replace("offset.", "x."), STANDALONE)
    assert "offset.storage.file.filename" in missing
    (found,) = problems("headgate.assignment.policy=kip415", ALONE, STANDALONE)
    assert "is not for standalone workers" in found
    # What a group needs is no fault in a file of a worker without one.
    assert check("group.id=x\n", ALONE, STANDALONE).warnings == (
        "w.properties: these keys are not used here: group.id",
    )
