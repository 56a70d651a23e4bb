"""Stores that Java's keytool made are read as PEM, which OpenSSL itself accepts."""

import re
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from headgate_kafka.clients.settings import ClientSettingsError, kafka_python, librdkafka
from headgate_kafka.login.key_stores import StoreError, identity, trusted_certificates
from local_kafka.certificates import Authority, as_pem
from local_kafka.jars import java


@dataclass(frozen=True)
class Stores:
    """Made once: Java takes most of a second for each step."""

    authority: Authority
    folder: Path
    key: str
    """Of ``client``, PEM."""
    chain: str

    def __call__(self, name: str) -> Path:
        return self.folder / name

    @property
    def password(self) -> str:
        return self.authority.password

    def properties(self, trusted: str, key: str, **more: str) -> dict[str, str]:
        """Return Java's properties for files of this folder."""
        return {
            "security.protocol": "SSL",
            **self.store("truststore", trusted),
            **self.store("keystore", key),
            **more,
        }

    def store(self, which: str, name: str) -> dict[str, str]:
        found = {f"ssl.{which}.location": str(self(name))}
        if name.endswith(".pem"):
            return found | {f"ssl.{which}.type": "PEM"}
        found[f"ssl.{which}.password"] = self.password
        return found if name.endswith(".jks") else found | {f"ssl.{which}.type": "PKCS12"}


def keytool(*arguments: str) -> None:
    subprocess.run([java("keytool"), *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    folder = tmp_path_factory.mktemp("stores")
    authority = Authority(folder)
    authority.make()
    client = authority.issue("client")
    key, chain = as_pem(client, authority.password)
    made = Stores(authority, folder, key, chain)
    authority.trust(made("trusted.p12"))
    authority.trust(made("trusted.jks"), "JKS")
    authority.converted(client, made("client.jks"), "JKS", "-destkeypass", "of the key")
    made("client.pem").write_text(key + chain)
    made("trusted.pem").write_text(authority.ca_file.read_text())
    return made


def secret_of(text: str) -> object:
    """Two encodings of one key may differ: the public half may be left out."""
    return load_pem_private_key(text.encode(), None).private_numbers()  # type: ignore[union-attr]


def der_of(text: str) -> list[bytes]:
    found = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.DOTALL)
    return [ssl.PEM_cert_to_DER_cert(each) for each in found]


KEY_PASSWORD = {"ssl.key.password": "of the key"}


@pytest.mark.parametrize("trusted", ["trusted.p12", "trusted.jks", "trusted.pem"])
@pytest.mark.parametrize("key", ["client.p12", "client.jks", "client.pem"])
def test_stores_of_all_kinds_come_to_the_same(stores: Stores, trusted: str, key: str) -> None:
    more = KEY_PASSWORD if key == "client.jks" else {}
    properties = stores.properties(trusted, key, **more)
    made = librdkafka(properties, "admin")
    AdminClient({**made, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})  # type: ignore[dict-item]
    assert der_of(made["ssl.ca.pem"]) == der_of(stores("ca.pem").read_text())
    assert der_of(made["ssl.certificate.pem"]) == der_of(stores.chain)
    assert len(der_of(stores.chain)) == 2
    assert secret_of(made["ssl.key.pem"]) == secret_of(stores.key)
    assert not {name for name in made if name.endswith(".location")}
    context = kafka_python(properties)["ssl_context"]
    assert context.get_ca_certs(binary_form=True) == der_of(made["ssl.ca.pem"])
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
    any_name = {**properties, "ssl.endpoint.identification.algorithm": ""}
    context = kafka_python(any_name)["ssl_context"]
    assert not context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED


def test_what_a_store_is_its_bytes_say_as_in_java(stores: Stores) -> None:
    """Java's type JKS, the default, reads PKCS12 as well, and the other way round."""
    properties = stores.properties("trusted.p12", "client.jks", **KEY_PASSWORD)
    properties["ssl.truststore.type"] = "JKS"
    properties["ssl.keystore.type"] = "PKCS12"
    made = librdkafka(properties, "admin")
    assert der_of(made["ssl.ca.pem"]) == der_of(stores("ca.pem").read_text())
    assert secret_of(made["ssl.key.pem"]) == secret_of(stores.key)


def test_the_old_encryption_of_pkcs12(stores: Stores) -> None:
    old = stores("old.p12")
    word = ("-storepass", stores.password)
    entry = ("-noprompt", "-alias", "a", "-file", str(stores("ca.pem")), "-storetype", "PKCS12")
    keytool("-J-Dkeystore.pkcs12.legacy", "-importcert", *entry, "-keystore", str(old), *word)
    found = trusted_certificates("old.p12", old.read_bytes(), stores.password)
    assert der_of(found) == der_of(stores("ca.pem").read_text())


def test_certificates_beside_the_key_are_not_sent_as_its_chain(stores: Stores) -> None:
    other = Authority(stores("other"), "another authority")
    other.make()
    both = stores("both.p12")
    both.write_bytes(stores("client.p12").read_bytes())
    entry = ("-noprompt", "-alias", "other", "-file", str(other.ca_file))
    keytool("-importcert", *entry, "-keystore", str(both), "-storepass", stores.password)
    found = identity("both.p12", both.read_bytes(), stores.password, None)
    assert der_of(found.chain) == der_of(stores.chain)
    with pytest.raises(StoreError, match=r"both.p12 has a private key, expected a trust store"):
        trusted_certificates("both.p12", both.read_bytes(), stores.password)


def test_a_jks_store_trusts_of_its_key_the_first_certificate_alone(stores: Stores) -> None:
    data = stores("client.jks").read_bytes()
    found = trusted_certificates("client.jks", data, stores.password)
    assert der_of(found) == der_of(stores.chain)[:1]


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("client.p12", {"ssl.keystore.password": "Wrong"}, "its password is another one"),
        ("client.jks", {"ssl.keystore.password": "Wrong"}, "its password is another one"),
        ("client.jks", {"ssl.key.password": "Wrong"}, "the password of its key 'client'"),
        ("client.jks", {}, "ssl.keystore.password where that is absent"),
        ("trusted.p12", {}, "has no private key, expected one"),
        ("trusted.jks", {}, "has 0 private keys, expected one"),
        ("ca.pem", {"ssl.keystore.type": "PEM"}, "has 0 private keys"),
        ("ca.pem", {"ssl.keystore.type": "JKS", "ssl.keystore.password": "x"}, "type PEM"),
        ("none.p12", {}, "none.p12 cannot be read: No such file"),
        ("cut.jks", {"ssl.keystore.password": None}, "is missing"),
    ],
)
def test_a_key_store_that_is_refused(
    stores: Stores, name: str, changes: dict[str, str], text: str
) -> None:
    properties: dict[str, str | None] = {**stores.properties("trusted.p12", name), **changes}
    stores("cut.jks").write_bytes(stores("client.jks").read_bytes()[:200])
    with pytest.raises(ClientSettingsError, match=re.escape(text)) as caught:
        librdkafka(properties, "admin")
    assert caught.value.key.startswith("ssl.keystore.")
    assert "Wrong" not in str(caught.value) and stores.password not in str(caught.value)


def test_a_damaged_store_is_refused(stores: Stores) -> None:
    whole = stores("trusted.jks").read_bytes()
    changed = whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:]
    with pytest.raises(StoreError, match="changed without it"):
        trusted_certificates("t", changed, stores.password)
    for length in range(4, len(whole) - 20):
        with pytest.raises(StoreError):
            trusted_certificates("t", whole[:length], None)
    with pytest.raises(StoreError, match="JCEKS"):
        trusted_certificates("t", b"\xce\xce\xce\xce\0\0\0\2", None)
    with pytest.raises(StoreError, match="or it is damaged"):
        trusted_certificates("t", stores("trusted.p12").read_bytes()[:-9], stores.password)


def test_a_trust_store_without_certificates_is_refused(stores: Stores) -> None:
    """Java says of it: the trustAnchors parameter must be non-empty."""
    empty = stores("empty.jks")
    word = ("-keystore", str(empty), "-storepass", stores.password)
    empty.write_bytes(stores("trusted.jks").read_bytes())
    keytool("-delete", "-alias", "authority", *word)
    with pytest.raises(StoreError, match="no certificate to trust"):
        trusted_certificates("empty.jks", empty.read_bytes(), stores.password)


def test_pem_in_one_line_as_continued_lines_of_a_properties_file_give_it(stores: Stores) -> None:
    def flat(text: str) -> str:
        return " ".join(text.split("\n"))

    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": flat(stores("ca.pem").read_text()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": flat(stores.chain),
        "ssl.keystore.key": flat(stores.key),
    }
    made = librdkafka(properties, "admin")
    assert der_of(made["ssl.certificate.pem"]) == der_of(stores.chain)
    assert secret_of(made["ssl.key.pem"]) == secret_of(stores.key)
    kafka_python(properties)
    for key, text in (
        ("ssl.keystore.key", "given without ssl.keystore.key"),
        ("ssl.keystore.type", "is for ssl.keystore.type=PEM only, and that is JKS"),
    ):
        with pytest.raises(ClientSettingsError, match=text):
            librdkafka({**properties, key: None}, "admin")
    with pytest.raises(ClientSettingsError, match="are both given, expected one"):
        librdkafka({**properties, "ssl.truststore.location": "a.pem"}, "admin")
    with pytest.raises(ClientSettingsError, match="no base64"):
        broken = properties["ssl.keystore.key"].replace("MI", "M*")
        librdkafka({**properties, "ssl.keystore.key": broken}, "admin")


def test_a_key_that_is_encrypted_needs_its_password_and_asks_no_terminal(stores: Stores) -> None:
    encrypt = ("openssl", "pkcs8", "-topk8", "-in", str(stores("client.pem")))
    done = subprocess.run(
        [*encrypt, "-passout", "pass:sesame"], check=True, capture_output=True, text=True
    )
    stores("sealed.pem").write_text(stores.chain + done.stdout)
    properties = stores.properties("trusted.pem", "sealed.pem")
    kafka_python({**properties, "ssl.key.password": "sesame"})
    for more in ({}, {"ssl.key.password": "Wrong"}):
        with pytest.raises(ClientSettingsError, match=r"is ssl.key.password right") as caught:
            kafka_python({**properties, **more})
        assert "Wrong" not in str(caught.value)


def test_stores_mean_nothing_without_tls(stores: Stores) -> None:
    """The stores may be the REST server's, or left over."""
    properties = stores.properties("none.jks", "none.jks") | {"security.protocol": "PLAINTEXT"}
    made = librdkafka(properties, "admin")
    assert made["security.protocol"] == "plaintext"
    assert not [key for key in made if key.startswith("ssl.")]
