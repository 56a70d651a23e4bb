"""Translation of PEM as Kafka's Java clients read it into PEM as OpenSSL reads it.

Java ignores line ends. In a properties file with continued lines, a certificate is one line with
blanks. OpenSSL requires the first and the last line of an entry to stand alone. Both skip text
between entries. Source: KIP-651, DefaultSslEngineFactory.PemStore.
"""

import base64
import binascii
import re

_ENTRY = re.compile(r"-+BEGIN\s+([A-Z0-9 ]+?)\s*-+(.*?)-+END\s+\1\s*-+", re.DOTALL | re.IGNORECASE)
_LINE = 64


class PemError(ValueError):
    """A text does not have the expected PEM entries. The message shows no part of the text, which
    may be a key."""


def certificates(text: str) -> str:
    """Return all certificates of `text`, in their order.

    Raises:
        PemError: there is none, or an entry is damaged.
    """
    found = [entry for label, entry in _entries(text) if label.endswith("CERTIFICATE")]
    if not found:
        raise PemError("has no -----BEGIN CERTIFICATE-----")
    return "".join(found)


def private_key(text: str) -> str:
    """Return the private key of `text`, encrypted or not.

    Raises:
        PemError: there is not exactly one, or an entry is damaged.
    """
    found = [entry for label, entry in _entries(text) if label.endswith("PRIVATE KEY")]
    if len(found) != 1:
        raise PemError(f"has {len(found)} private keys (-----BEGIN ... KEY-----), expected one")
    return found[0]


def written(label: str, der: bytes) -> str:
    """Return one PEM entry as OpenSSL reads it."""
    text = base64.b64encode(der).decode()
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _entries(text: str) -> list[tuple[str, str]]:
    """Return (label, entry) of each PEM entry, in the order of `text`."""
    found = []
    for match in _ENTRY.finditer(text):
        label, body = " ".join(match[1].upper().split()), match[2]
        if ":" in body:  # OpenSSL's old encryption, whose headers need lines of their own
            found.append((label, match[0] + "\n"))
            continue
        try:
            der = base64.b64decode("".join(body.split()), validate=True)
        except binascii.Error:
            raise PemError(f"has a damaged {label}: what is in it is no base64") from None
        found.append((label, written(label, der)))
    return found
