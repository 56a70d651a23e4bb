"""Certificates for brokers and clients of tests, made by Java's own keytool: an authority, what it
signs, and stores in each of Java's kinds and in PEM."""

import secrets
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from local_kafka.jars import java
from local_kafka.jvm import QUICK, run

_AUTHORITY = "authority"


class Authority:
    """One that signs certificates; its stores have all one password.

    Args:
        folder: for what it makes. What is there already is used.
        name: of the authority, its CN.
    """

    def __init__(self, folder: Path, name: str = _AUTHORITY) -> None:
        self.folder = folder
        self._name = name
        self._store = folder / "authority.p12"

    @property
    def ca_file(self) -> Path:
        """File of the authority's own certificate, as PEM."""
        return self.folder / "ca.pem"

    @property
    def password(self) -> str:
        return self._password_file.read_text()

    @property
    def _password_file(self) -> Path:
        return self.folder / "stores.password"

    def make(self) -> None:
        """Unless it was made before."""
        if self.ca_file.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._password_file.write_text(secrets.token_hex(16))
        self._generate(_AUTHORITY, f"CN={self._name}", "-ext", "bc:c")
        certificate = self._keytool("-exportcert", "-rfc", "-alias", _AUTHORITY, store=self._store)
        self.ca_file.write_text(certificate)

    def issue(self, alias: str, *extensions: str) -> Path:
        """A PKCS12 store with a new key, CN=`alias`, and its chain up to this authority.

        Args:
            extensions: as of keytool's -ext, such as ``SAN=ip:127.0.0.1``.
        """
        made = self.folder / f"{alias}.p12"
        options = [part for extension in extensions for part in ("-ext", extension)]
        self._generate(alias, f"CN={alias}", "-signer", _AUTHORITY, *options)
        self.converted(self._store, made, "PKCS12", "-srcalias", alias)
        return made

    def trust(self, store: Path, kind: str = "PKCS12") -> Path:
        """A new trust store with this authority's certificate."""
        entry = ("-noprompt", "-alias", _AUTHORITY, "-file", str(self.ca_file))
        self._keytool("-importcert", *entry, "-storetype", kind, store=store)
        return store

    def converted(self, store: Path, into: Path, kind: str, *options: str) -> Path:
        """The keys of a store in another one of this kind."""
        source = ("-srckeystore", str(store), "-srcstorepass", self.password)
        target = ("-destkeystore", str(into), "-deststorepass", self.password)
        words = ("-importkeystore", "-noprompt", *source, *target, "-deststoretype", kind)
        _run_keytool(*words, *options)
        return into

    def _generate(self, alias: str, name: str, *options: str) -> None:
        kind = ("-keyalg", "EC", "-validity", "3650", "-storetype", "PKCS12")
        words = ("-genkeypair", "-alias", alias, "-dname", name, *kind, *options)
        self._keytool(*words, store=self._store)

    def _keytool(self, *arguments: str, store: Path) -> str:
        word = ("-storepass:file", str(self._password_file))
        return _run_keytool(*arguments, "-keystore", str(store), *word)


def _run_keytool(*arguments: str) -> str:
    return run([java("keytool"), *(f"-J{flag}" for flag in QUICK), *arguments])


def as_pem(store: Path, password: str) -> tuple[str, str]:
    """(private key, its certificates) of a PKCS12 store, read by a library that is not ours."""
    found = pkcs12.load_pkcs12(store.read_bytes(), password.encode())
    assert found.key is not None and found.cert is not None, f"{store} has no key"
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [found.cert, *found.additional_certs]
    texts = [each.certificate.public_bytes(Encoding.PEM).decode() for each in chain]
    return key.decode(), "".join(texts)
