"""For settings from which no Kafka client can be made, the commands print one line and connect to
no broker."""

import subprocess
import sys
from pathlib import Path

import pytest

from headgate_kafka.clients.trial import built_with

FILE = """\
bootstrap.servers=127.0.0.1:1
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
listeners=http://127.0.0.1:0
headgate.task.runner=thread
default.api.timeout.ms=500
"""
DISTRIBUTED = """\
group.id=g
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
"""
STANDALONE = "offset.storage.file.filename=offsets\n"
DNS = "client.dns.lookup=nonsense"
DNS_TOLD = (
    "client.dns.lookup: 'nonsense' is none of use_all_dns_ips, "
    "resolve_canonical_bootstrap_servers_only"
)
COMPRESSION_TOLD = "compression.type: 'foo' is none of none, gzip, snappy, lz4, zstd"
KERBEROS = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=GSSAPI
sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required principal=connect;"""


def ran(command: str, more: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "worker.properties"
    file.write_text(f"{FILE}{STANDALONE if command == 'standalone' else DISTRIBUTED}{more}\n")
    arguments = [command, *(["--properties"] if command == "observe" else []), str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "headgate_runtime.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    ("command", "given", "told"),
    [
        ("worker", DNS, DNS_TOLD),
        ("standalone", DNS, DNS_TOLD),
        (
            "worker",
            "metadata.recovery.strategy=foo",
            "metadata.recovery.strategy: 'foo' is none of none, rebootstrap",
        ),
        (
            "worker",
            "compression.type=foo",
            COMPRESSION_TOLD,
        ),
        (
            "worker",
            "debug=foo",
            "debug: 'foo' is refused by librdkafka: Invalid value \"foo\" for configuration "
            'property "debug"',
        ),
    ],
)
def test_a_worker_is_not_started(command: str, given: str, told: str, tmp_path: Path) -> None:
    done = ran(command, given, tmp_path)
    assert done.stderr == f"headgate: {tmp_path / 'worker.properties'}: {told}\n"
    assert done.returncode == 2


@pytest.mark.parametrize("command", ["worker", "standalone"])
def test_kerberos_is_refused_at_the_start(command: str, tmp_path: Path) -> None:
    assert not built_with("sasl_gssapi"), "of librdkafka as it is pinned here"
    done = ran(command, KERBEROS, tmp_path)
    assert "sasl.mechanism: GSSAPI (Kerberos) cannot be used" in done.stderr
    assert (len(done.stderr.splitlines()), done.returncode) == (1, 2)


@pytest.mark.parametrize("command", ["worker", "standalone"])
def test_what_java_takes_gets_as_far_as_the_brokers(command: str, tmp_path: Path) -> None:
    given = "client.dns.lookup=use_all_dns_ips\nmetadata.recovery.strategy=REBOOTSTRAP"
    done = ran(command, given, tmp_path)
    assert "Failed to connect to and describe Kafka cluster" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("command", "given", "told", "code"),
    [
        ("doctor", DNS, DNS_TOLD, 1),
        ("doctor", "compression.type=foo", COMPRESSION_TOLD, 1),
        ("observe", DNS, DNS_TOLD, 2),
    ],
)
def test_who_looks_on_is_told_too(
    command: str, given: str, told: str, code: int, tmp_path: Path
) -> None:
    done = ran(command, given, tmp_path)
    assert told in " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code


@pytest.mark.parametrize("command", ["worker", "doctor"])
def test_what_a_reference_came_to_is_not_shown(command: str, tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("password=thesecret\n")
    given = (
        "config.providers=file\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"compression.type=${{file:{tmp_path}/secrets.properties:password}}"
    )
    done = ran(command, given, tmp_path)
    assert "compression.type: " in " ".join((done.stdout + done.stderr).split())
    assert "thesecret" not in done.stdout + done.stderr
