"""A worker can read the examples of docs/run/security.md."""

from pathlib import Path

import pytest
from support.grpc.pem import make_pem
from support.pages import block

from headgate_kafka.clients.settings import consumer_settings, producer_settings
from headgate_rest import RestSettings
from headgate_runtime.config.settings import DISTRIBUTED
from headgate_runtime.config.worker_file import WorkerFile, read_worker_file

PAGE = "docs/run/security.md"
AROUND = """
bootstrap.servers=broker:9093
group.id=g
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
key.converter=StringConverter
value.converter=StringConverter
"""
PASSWORD = "one of a few words"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the page keeps in /etc/headgate and /run/secrets."""
    made = tmp_path_factory.mktemp("etc")
    pem = make_pem(made)
    (made / "brokers-ca.pem").write_text((pem / "ca.pem").read_text())
    (made / "kafka.properties").write_text(f"password={PASSWORD}\n")
    return made


def worker(part: str, folder: Path) -> WorkerFile:
    shown = block(PAGE, "properties", part)
    for place in ("/etc/headgate", "/run/secrets"):
        shown = shown.replace(place, str(folder))
    file = folder / "worker.properties"
    file.write_text(AROUND + shown)
    found = read_worker_file(str(file), DISTRIBUTED)
    assert not found.warnings
    return found


def test_every_client_of_the_example_logs_in(folder: Path) -> None:
    given = worker("producer.sasl.jaas.config", folder).properties
    clients = [
        producer_settings(given, {}, client_id="c", transactional_id=None),
        consumer_settings(given, {}, client_id="c", group_id="g", warn=print),
    ]
    for settings in clients:
        assert settings["security.protocol"].upper() == "SASL_SSL"
        assert (settings["sasl.username"], settings["sasl.password"]) == ("connect", PASSWORD)
        assert "BEGIN CERTIFICATE" in settings["ssl.ca.pem"]


def test_the_listener_of_the_example_asks_for_certificates(folder: Path) -> None:
    tls = RestSettings.of(worker("listeners.https.ssl.client.auth", folder).properties).tls
    assert tls.client_auth == "required"
    assert tls.certificate == f"{folder}/worker-key-and-certificate.pem"
    assert tls.trusted == f"{folder}/operators-ca.pem"


def test_the_grpc_listener_of_the_example_is_taken(folder: Path) -> None:
    settings = worker("headgate.grpc.ssl.client.ca.file", folder).settings
    assert settings["headgate.grpc.listeners"] == ("grpcs://0.0.0.0:8085",)
