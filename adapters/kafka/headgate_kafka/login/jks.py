"""Reader of Java's own key store format, JKS.

No maintained library reads it, and the format is small: entries one after the other, as Java's
DataOutput writes them, then a SHA-1 over password and content. Certificates are not encrypted. A
private key is XORed with a key stream, which is SHA-1 over the password and the block before. That
protection is weak (Java itself advises PKCS12), but it has to be undone here. Source: the classes
sun.security.provider.JavaKeyStore and KeyProtector.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

MAGIC = b"\xfe\xed\xfe\xed"
_VERSIONS = (1, 2)
_KEY, _CERTIFICATE = 1, 2
_DIGEST = 20
_WHITENER = b"Mighty Aphrodite"
_KEY_PROTECTOR = bytes.fromhex("2b060104012a02110101")
"""Object id of the algorithm that protects keys: 1.3.6.1.4.1.42.2.17.1.1."""


class JksError(ValueError):
    """A JKS store cannot be read. The message shows no secret of it."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    alias: str
    protected: bytes = field(repr=False)
    """An EncryptedPrivateKeyInfo in DER."""
    chain: tuple[bytes, ...]
    """X.509 certificates in DER, the key's own first."""


@dataclass(frozen=True, slots=True)
class Jks:
    keys: tuple[KeyEntry, ...]
    trusted: tuple[bytes, ...]
    """X.509 certificates in DER."""


def read_jks(data: bytes, password: str | None) -> Jks:
    """Read a JKS store. Its private keys remain encrypted.

    Args:
        password: the store's password. Without one the content is not checked, as in Java.

    Raises:
        JksError: the store is damaged, or the password is wrong.
    """
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    if password is not None:
        seen = hashlib.sha1(_password_bytes(password) + _WHITENER + content).digest()
        if not hmac.compare_digest(seen, digest):
            raise JksError("its password is another one, or it was changed without it")
    reader = _Reader(content, len(MAGIC))
    version = reader.number()
    if version not in _VERSIONS:
        raise JksError(f"it is of version {version}, expected 1 or 2")
    keys: list[KeyEntry] = []
    trusted: list[bytes] = []
    for _ in range(reader.number()):
        tag, alias = reader.number(), reader.text()
        reader.take(8)  # when it was made
        if tag == _KEY:
            protected = reader.block()
            chain = tuple(reader.certificate(version) for _ in range(reader.number()))
            keys.append(KeyEntry(alias, protected, chain))
        elif tag == _CERTIFICATE:
            trusted.append(reader.certificate(version))
        else:
            raise JksError(f"it has an entry of kind {tag}, expected 1 or 2")
    return Jks(tuple(keys), tuple(trusted))


def unprotected(entry: KeyEntry, password: str) -> bytes:
    """Decrypt the private key of an entry and return it, a PrivateKeyInfo in DER.

    Raises:
        JksError: the password is wrong, or the key is protected in another way.
    """
    sealed = _octets(entry.protected)
    salt, middle, digest = sealed[:_DIGEST], sealed[_DIGEST:-_DIGEST], sealed[-_DIGEST:]
    secret = _password_bytes(password)
    plain = bytearray()
    block = salt
    for at in range(0, len(middle), _DIGEST):
        block = hashlib.sha1(secret + block).digest()
        plain += bytes(a ^ b for a, b in zip(middle[at : at + _DIGEST], block, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), digest):
        raise JksError(f"the password of its key {entry.alias!r} is another one")
    return bytes(plain)


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be")


class _Reader:
    """A reader of Java's DataOutput format: numbers are big-endian, and texts and blocks follow
    their length."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) != count:
            raise JksError("it ends too early")
        self._at += count
        return found

    def number(self) -> int:
        return int.from_bytes(self.take(4))

    def text(self) -> str:
        return self.take(int.from_bytes(self.take(2))).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self.take(self.number())

    def certificate(self, version: int) -> bytes:
        kind = self.text() if version > 1 else "X.509"
        if kind not in ("X.509", "X509"):
            raise JksError(f"it has a certificate of kind {kind!r}, expected X.509")
        return self.block()


def _octets(der: bytes) -> bytes:
    """Return the octets of an EncryptedPrivateKeyInfo, which is SEQUENCE { SEQUENCE { algorithm },
    OCTETS }."""
    outer = _element(der, 0x30)[0]
    algorithm, rest = _element(outer, 0x30)
    if _element(algorithm, 0x06)[0] != _KEY_PROTECTOR:
        raise JksError("a key in it is not protected as JKS has it")
    return _element(rest, 0x04)[0]


def _element(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return the content of the first DER element, which must have this tag, and the bytes after
    it."""
    if len(der) < 2 or der[0] != tag:
        raise JksError("a key in it is damaged")
    length, start = der[1], 2
    if length >= 0x80:
        start += length - 0x80
        length = int.from_bytes(der[2:start])
    return der[start : start + length], der[start + length :]
