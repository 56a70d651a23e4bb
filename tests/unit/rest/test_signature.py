"""Signatures of internal requests are made as Java makes them, and bad ones are refused."""

import pytest

from headgate.herder.session_keys import KeyRing
from headgate.topics.config_events import SessionKeyChanged
from headgate_rest.http import Refusal
from headgate_rest.signature import (
    ALGORITHM_HEADER,
    DIGESTS,
    SIGNATURE_HEADER,
    sign,
    signature_headers,
    verify,
)

KEY = SessionKeyChanged(0, bytes(range(32)), "HmacSHA256", 1)
RING = KeyRing(KEY)
BODY = b'[{"file":"a"}]'
ALLOWED = ("HmacSHA256", "HmacSHA512")


def headers(
    signature: str | None = None, algorithm: str | None = "HmacSHA256", body: bytes = BODY
) -> dict[str, str]:
    given = signature_headers(KEY, body, "HmacSHA256")[SIGNATURE_HEADER]
    found = {
        SIGNATURE_HEADER.lower(): given if signature is None else signature,
        ALGORITHM_HEADER.lower(): algorithm,
    }
    return {name: text for name, text in found.items() if text is not None}


def test_the_signature_is_that_of_the_rfc() -> None:
    """RFC 4231, test case 2: Java's Mac gives these bytes too."""
    expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert sign(b"Jefe", b"what do ya want for nothing?", "HmacSHA256").hex() == expected


@pytest.mark.parametrize("algorithm", DIGESTS)
def test_what_is_signed_is_verified(algorithm: str) -> None:
    signed = signature_headers(KEY, BODY, algorithm)
    verify({name.lower(): text for name, text in signed.items()}, BODY, RING, (algorithm,))


def test_a_request_without_a_body_is_signed_over_no_bytes() -> None:
    verify(headers(body=b""), b"", RING, ALLOWED)


@pytest.mark.parametrize(
    ("given", "key", "status", "text"),
    [
        ({}, KEY, 400, "Internal request missing required signature"),
        (headers(algorithm=None), KEY, 400, "Internal request missing required signature"),
        (headers(algorithm="bogus"), KEY, 400, "Algorithm bogus not available"),
        (headers("?"), KEY, 400, "not base64"),
        (
            headers(algorithm="HmacSHA1"),
            KEY,
            400,
            "This worker does not support the 'HmacSHA1' key signing algorithm used by other "
            "workers. This worker is currently configured to use: [HmacSHA256, HmacSHA512].",
        ),
        (headers(), None, 503, "has not been able to read a session key"),
        (headers("AAAA"), KEY, 403, "Internal request contained invalid signature."),
        (headers(body=b"[]"), KEY, 403, "Internal request contained invalid signature."),
        (headers(algorithm="HmacSHA512"), KEY, 403, "Internal request contained invalid"),
        (headers(), SessionKeyChanged(0, b"other", "HmacSHA256", 1), 403, "invalid signature"),
    ],
)
def test_a_request_is_refused(
    given: dict[str, str], key: SessionKeyChanged | None, status: int, text: str
) -> None:
    with pytest.raises(Refusal) as refused:
        verify(given, BODY, KeyRing(key), ALLOWED)
    assert refused.value.status == status
    assert text in refused.value.message
