"""Certificates for brokers and clients in tests, made by Java's own keytool.

There is an authority, certificates that it signs, and stores in each of Java's formats and in PEM.
"""

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
    """A certificate authority. All of its stores have the same password.

    Args:
        folder: folder for its files. Files of an earlier run are used.
        name: common name (CN) of the authority.
    """

    def __init__(self, folder: Path, name: str = _AUTHORITY) -> None:
        self.folder = folder
        self._name = name
        self._store = folder / "authority.p12"

    @property
    def ca_file(self) -> Path:
        """PEM file with the authority's own certificate."""
        return self.folder / "ca.pem"

    @property
    def password(self) -> str:
        return self._password_file.read_text()

    @property
    def _password_file(self) -> Path:
        return self.folder / "stores.password"

    def make(self) -> None:
        """Create the authority, unless it was created before."""
        if self.ca_file.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._password_file.write_text(secrets.token_hex(16))
        self._generate(_AUTHORITY, f"CN={self._name}", "-ext", "bc:c")
        certificate = self._keytool("-exportcert", "-rfc", "-alias", _AUTHORITY, store=self._store)
        self.ca_file.write_text(certificate)

    def issue(self, alias: str, *extensions: str) -> Path:
        """Create a PKCS12 store with a new key, CN=`alias`, and its chain up to this authority.

        Args:
            extensions: values of keytool's ``-ext``, such as ``SAN=ip:127.0.0.1``.
        """
        made = self.folder / f"{alias}.p12"
        options = [part for extension in extensions for part in ("-ext", extension)]
        self._generate(alias, f"CN={alias}", "-signer", _AUTHORITY, *options)
        self.converted(self._store, made, "PKCS12", "-srcalias", alias)
        return made

    def trust(self, store: Path, kind: str = "PKCS12") -> Path:
        """Create a trust store of format `kind` with this authority's certificate. Returns its
        path."""
        entry = ("-noprompt", "-alias", _AUTHORITY, "-file", str(self.ca_file))
        self._keytool("-importcert", *entry, "-storetype", kind, store=store)
        return store

    def converted(self, store: Path, into: Path, kind: str, *options: str) -> Path:
        """Copy the keys of a store into a new store of format `kind`. Returns the new one's
        path."""
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
    """Return (private key, certificate chain) of a PKCS12 store as PEM, read by `cryptography`."""
    found = pkcs12.load_pkcs12(store.read_bytes(), password.encode())
    assert found.key is not None and found.cert is not None, f"{store} has no key"
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [found.cert, *found.additional_certs]
    texts = [each.certificate.public_bytes(Encoding.PEM).decode() for each in chain]
    return key.decode(), "".join(texts)
