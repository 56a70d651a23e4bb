"""Reader of the JVM's key and trust stores, JKS and PKCS12, into PEM in memory.

The first bytes of a file tell the kind of store. Java does the same: it reads either kind under
both type names. No file is written. Source: DefaultSslEngineFactory.FileBasedStore, and
TrustManagerFactory for which certificates of a store are trusted.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate_kafka.login.jks import MAGIC as JKS_MAGIC
from headgate_kafka.login.jks import Jks, JksError, read_jks, unprotected
from headgate_kafka.login.pem import written

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_SEQUENCE = b"\x30"
CONVERT = "keytool -importkeystore -srckeystore {0} -destkeystore {0}.p12 -deststoretype pkcs12"


class StoreError(ValueError):
    """A store cannot be used. The message says why and what to do, and shows no secret."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's private key and certificates, in PEM."""

    key: str = field(repr=False)
    """The private key. From a JKS or PKCS12 store it is not encrypted."""
    chain: str
    """The certificate of the key, then those of the authorities that vouch for it."""


def trusted_certificates(file: str, data: bytes, password: str | None) -> str:
    """Return all certificates that a trust store trusts, in PEM. As in Java, a JKS store also
    trusts the certificate of a private key.

    Args:
        file: the file's name, for messages.

    Raises:
        StoreError: the store has no certificates, is of another kind, or its password is wrong.
    """
    if data.startswith(JKS_MAGIC):
        store = _read_jks(file, data, password)
        found = [*store.trusted, *(entry.chain[0] for entry in store.keys if entry.chain)]
    else:
        found = _trusted_of_pkcs12(file, data, password)
    if not found:
        raise StoreError(
            f"{file} has no certificate to trust (keytool -list -keystore {file}); expected those "
            "of the authorities that sign the brokers' (keytool -importcert)"
        )
    return "".join(written("CERTIFICATE", der) for der in found)


def identity(file: str, data: bytes, password: str | None, key_password: str | None) -> Identity:
    """Return the private key of a key store and its certificates.

    Args:
        file: the file's name, for messages.
        key_password: the key's password. None: it is the store's.

    Raises:
        StoreError: the store does not have exactly one key, is of another kind, or a password is
            wrong.
    """
    if not data.startswith(JKS_MAGIC):
        return _identity_of_pkcs12(file, data, password)
    store = _read_jks(file, data, password)
    if len(store.keys) != 1:
        names = ", ".join(entry.alias for entry in store.keys)
        raise _not_one_key(file, f"{len(store.keys)} private keys" + (names and f" ({names})"))
    secret = password if key_password is None else key_password
    try:
        key = unprotected(store.keys[0], secret or "")
    except JksError as error:
        raise StoreError(
            f"{file}: {error} than ssl.key.password, or ssl.keystore.password where that is absent"
        ) from None
    chain = "".join(written("CERTIFICATE", der) for der in store.keys[0].chain)
    return Identity(written("PRIVATE KEY", key), chain)


def _read_jks(file: str, data: bytes, password: str | None) -> Jks:
    try:
        return read_jks(data, password)
    except JksError as error:
        raise StoreError(f"{file} cannot be read as JKS: {error}") from None


def _not_one_key(file: str, seen: str) -> StoreError:
    return StoreError(
        f"{file} has {seen}, expected one with its certificates (keytool -list -keystore {file})"
    )


# -- PKCS12 --


def _trusted_of_pkcs12(file: str, data: bytes, password: str | None) -> list[bytes]:
    """Return all certificates of a PKCS12 trust store, in DER.

    Differs: Java trusts only certificates that have an attribute of its own, and the certificate of
    a key. Here a store with a key is refused: one cannot tell which of its certificates only vouch
    for the key.
    """
    store = _read_pkcs12(file, data, password)
    if store.key is not None:
        raise StoreError(
            f"{file} has a private key, expected a trust store with certificates alone: write "
            "those to trust with keytool -exportcert, and into one store with keytool -importcert"
        )
    found = [store.cert] if store.cert is not None else []
    return [_der(each.certificate) for each in (*found, *store.additional_certs)]


def _identity_of_pkcs12(file: str, data: bytes, password: str | None) -> Identity:
    from cryptography.hazmat.primitives import serialization

    store = _read_pkcs12(file, data, password)
    if store.key is None or store.cert is None:
        raise _not_one_key(file, "no private key" if store.key is None else "a key alone")
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    others = [each.certificate for each in store.additional_certs]
    chain = _chain(store.cert.certificate, others)
    return Identity(key.decode(), "".join(written("CERTIFICATE", _der(each)) for each in chain))


def _chain(leaf: "Certificate", others: "list[Certificate]") -> "list[Certificate]":
    """Return `leaf` and those of `others` that vouch for it, in order. A store may have them in any
    order, and others too, such as the authority that signs the brokers' certificates."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer), None)
        if issuer is None or issuer in chain:
            break
        chain.append(issuer)
    return chain


def _read_pkcs12(file: str, data: bytes, password: str | None) -> "PKCS12KeyAndCertificates":
    if not data.startswith(_SEQUENCE):
        kind = "JCEKS" if data.startswith(_JCEKS_MAGIC) else "none of JKS and PKCS12"
        raise StoreError(
            f"{file} is {kind}. A store of another kind of the JVM is converted by: "
            f"{CONVERT.format(file)}; PEM is announced by the type PEM"
        )
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        given = "no password is given for it" if password is None else "its password is another one"
        raise StoreError(f"{file} cannot be read as PKCS12: {given}, or it is damaged") from None


def _der(certificate: "Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)
