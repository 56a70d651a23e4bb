"""Signatures of internal requests between workers. Source: KIP-507, `InternalRequestSignature`.

Differs: signatures are compared in constant time, and each key of a `KeyRing` is tried.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection, Mapping
from typing import Final

from headgate.herder.session_keys import KeyRing
from headgate.topics.config_events import SessionKeyChanged
from headgate_rest.http import Refusal

SIGNATURE_HEADER: Final = "X-Connect-Authorization"
ALGORITHM_HEADER: Final = "X-Connect-Request-Signature-Algorithm"

DIGESTS: Final[Mapping[str, str]] = {
    "HmacMD5": "md5",
    "HmacSHA1": "sha1",
    "HmacSHA224": "sha224",
    "HmacSHA256": "sha256",
    "HmacSHA384": "sha384",
    "HmacSHA512": "sha512",
    "HmacSHA3-224": "sha3_224",
    "HmacSHA3-256": "sha3_256",
    "HmacSHA3-384": "sha3_384",
    "HmacSHA3-512": "sha3_512",
}
"""Python's name of a digest, by Java's name of the algorithm. Every JVM and Python has these."""

_DIGEST_BY_NAME: Final = {name.lower(): digest for name, digest in DIGESTS.items()}
"""The same by names in lower case, since Java ignores their case."""

MISSING: Final = "Internal request missing required signature"
INVALID: Final = "Internal request contained invalid signature."
NO_KEY: Final = (
    "This worker is still starting up and has not been able to read a session key from the config "
    "topic yet"
)
NOT_ALLOWED: Final = (
    "This worker does not support the '{}' key signing algorithm used by other workers. This "
    "worker is currently configured to use: {}. Check that all workers' configuration files permit "
    "the same set of signature algorithms, and correct any misconfigured worker and restart it."
)


def sign(key: bytes, body: bytes, algorithm: str) -> bytes:
    """Return the signature of `body`.

    Raises:
        KeyError: the algorithm is not in `DIGESTS`.
    """
    return hmac.new(key, body, getattr(hashlib, _DIGEST_BY_NAME[algorithm.lower()])).digest()


def signature_headers(key: SessionKeyChanged, body: bytes, algorithm: str) -> dict[str, str]:
    signature = base64.b64encode(sign(key.key, body, algorithm)).decode("ascii")
    return {SIGNATURE_HEADER: signature, ALGORITHM_HEADER: algorithm}


def verify(
    headers: Mapping[str, str],
    body: bytes,
    keys: KeyRing,
    allowed: Collection[str],
) -> None:
    """Check an internal request in a group that signs them.

    Args:
        headers: names in lower case.
        body: the body's bytes as they came, since these are signed.
        allowed: `inter.worker.verification.algorithms`.

    Raises:
        Refusal: 400 if there is no signature or its algorithm is not allowed, 503 while this worker
            has no key, 403 if the signature is wrong.
    """
    algorithm = headers.get(ALGORITHM_HEADER.lower())
    encoded = headers.get(SIGNATURE_HEADER.lower())
    if algorithm is None or encoded is None:
        raise Refusal(400, MISSING)
    if algorithm.lower() not in _DIGEST_BY_NAME:
        raise Refusal(400, f"Algorithm {algorithm} not available")
    try:
        given = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(400, f"The header {SIGNATURE_HEADER} is not base64") from None
    if algorithm not in allowed:
        raise Refusal(400, NOT_ALLOWED.format(algorithm, f"[{', '.join(allowed)}]"))
    if keys.current is None:
        raise Refusal(503, NO_KEY)
    for key in (keys.current.key, *keys.also):
        if hmac.compare_digest(sign(key, body, algorithm), given):
            return
    raise Refusal(403, INVALID)
