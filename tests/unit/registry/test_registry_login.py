"""Our converters set up Confluent's client for a gate with TLS and a password.

`tests/interop/test_schema_registry_server.py` has a registry behind the gate.
"""

from pathlib import Path
from urllib.parse import quote

import pytest
from support.grpc.pem import make_pem
from support.registry.gate import USER_INFO, gate
from support.registry.memory import converter

from headgate.connector.config import ConfigError
from headgate.connector.schema_registry import RegistryUnreachableError, UnknownSchemaError

SSL = "schema.registry.ssl."
DATA = b"\0\0\0\0\x07x"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pem(tmp_path_factory.mktemp("pem"))


def ask(config: dict[str, str]) -> None:
    given = {"max.retries": "0", **config}
    converter("AvroConverter", None, given).to_connect_data("t", DATA)


def by_user_info(url: str, pem: Path, user_info: str = USER_INFO) -> dict[str, str]:
    return {
        "schema.registry.url": url,
        SSL + "truststore.location": str(pem / "ca.pem"),
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": user_info,
    }


def test_the_login_is_taken_from_either_place(pem: Path) -> None:
    with gate(pem) as url:
        config = by_user_info(url, pem)
        longer = {**config, "schema.registry.basic.auth.user.info": USER_INFO}
        del longer["basic.auth.user.info"]
        user, _, password = USER_INFO.partition(":")
        in_url = f"https://{user}:{quote(password, safe='')}@{url.removeprefix('https://')}"
        trust = config[SSL + "truststore.location"]
        by_url = {"schema.registry.url": in_url, SSL + "truststore.location": trust}
        for given in (config, longer, by_url):
            with pytest.raises(UnknownSchemaError, match="does not know schema id 7"):
                ask(given)


def test_a_wrong_password_is_named_and_not_shown(pem: Path) -> None:
    with gate(pem) as url:
        expected = r"refuses the user \(401\) for schema id 7: check basic\.auth\.user\.info"
        with pytest.raises(RegistryUnreachableError, match=expected) as told:
            ask(by_user_info(url, pem, "bob:hunter2"))
        assert "hunter2" not in str(told.value)
        nobody = by_user_info(url, pem)
        del nobody["basic.auth.credentials.source"]
        with pytest.raises(RegistryUnreachableError, match=expected):
            ask(nobody)


def test_an_authority_that_is_not_trusted_is_named(pem: Path) -> None:
    with gate(pem) as url:
        expected = r"certificate.*schema\.registry\.ssl\.truststore\.location"
        config = by_user_info(url, pem)
        other = {**config, SSL + "truststore.location": str(pem / "other-ca.pem")}
        with pytest.raises(RegistryUnreachableError, match=expected):
            ask(other)
        del config[SSL + "truststore.location"]
        with pytest.raises(RegistryUnreachableError, match=expected):
            ask(config)


def test_a_client_certificate(pem: Path, tmp_path: Path) -> None:
    refused = pytest.raises(RegistryUnreachableError, match="does not take the client's")
    with gate(pem, client_ca="ca") as url, refused:
        ask(by_user_info(url, pem))
    both = tmp_path / "both.pem"
    for name, known in (("client", True), ("stranger", False)):
        key, certificate = (pem / f"{name}.key").read_text(), (pem / f"{name}.pem").read_text()
        both.write_text(key + certificate)
        with gate(pem, client_ca="ca") as url:
            config = {**by_user_info(url, pem), SSL + "keystore.location": str(both)}
            error = UnknownSchemaError if known else RegistryUnreachableError
            expected = "schema id 7" if known else r"schema\.registry\.ssl\.keystore\.location"
            with pytest.raises(error, match=expected):
                ask(config)


def test_an_http_address_of_an_https_port_is_named(pem: Path) -> None:
    with gate(pem) as url:
        config = by_user_info(url.replace("https", "http"), pem)
        with pytest.raises(RegistryUnreachableError, match=r"schema\.registry\.url is right"):
            ask(config)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({SSL + "truststore.location": "/nowhere.pem"}, "/nowhere.pem"),
        ({SSL + "truststore.type": "JKS"}, "truststore.type"),
        ({"basic.auth.user.info": "bob"}, "expected user:password"),
        ({SSL + "keystore.location": "/nowhere.pem"}, "/nowhere.pem"),
    ],
)
def test_settings_that_cannot_be_used(change: dict[str, str], expected: str, pem: Path) -> None:
    with pytest.raises(ConfigError, match=expected):
        ask({**by_user_info("https://127.0.0.1:1", pem), **change})
