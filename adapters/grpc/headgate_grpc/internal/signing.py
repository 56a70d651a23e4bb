"""Signatures of calls between workers. A signature covers the whole call, and is valid for one
callee and once.

Differs: Connect signs only the body (KIP-507). So an intercepted call can be sent again, to any
worker, as long as the key is valid.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final

TIME: Final = "headgate-time-ms"
NONCE: Final = "headgate-nonce-bin"
SIGNATURE: Final = "headgate-signature-bin"
BOOT: Final = "headgate-boot-bin"
BOOT_BYTES: Final = 16
NONCE_BYTES: Final = 16
SKEW_MS: Final = 300_000
"""How far the clocks of two workers may differ."""
NONCES_MAX: Final = 200_000
"""Most nonces that are remembered. Each is kept until `SKEW_MS` after the caller's time."""

MISSING: Final = "The call is not signed: only workers of the group may ask this"
WRONG: Final = (
    "The signature of the call is wrong: it is made with another session key, for another worker, "
    "or the call was changed on its way"
)
REPLAYED: Final = "The call was made before: each is taken once"
RESTARTED: Final = "This worker was started since the caller has called it last; sign its new start"
FULL: Final = "Too many calls were made within 5 minutes; ask again later"


class UnsignedError(Exception):
    """The call is refused, because its signature is missing, wrong or used before."""


class RestartedError(UnsignedError):
    """The call is signed for an earlier start of this worker, or for none."""


def metadata(
    key: bytes, method: str, callee: str, body: bytes, now_ms: int, boot: bytes = b""
) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata that signs a call.

    Args:
        callee: the address under which the callee is called.
        now_ms: wall time.
        boot: the callee's `Verifier.boot`, if the caller knows it.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    signature = _signature(key, method, callee, now_ms, nonce, boot, body)
    return ((TIME, str(now_ms)), (NONCE, nonce), (BOOT, boot), (SIGNATURE, signature))


class Verifier:
    """Verifies the signatures of calls, and accepts each call once. For one thread."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self.boot = secrets.token_bytes(BOOT_BYTES)
        """Random bytes of this start, for which each call is signed. After a restart the worker
        does not know which calls it had accepted before."""
        self._seen: dict[bytes, int] = {}
        """Wall time until which each nonce must be remembered, in order of arrival."""

    def verify(
        self,
        given: Mapping[str, str | bytes],
        method: str,
        callee: str,
        body: bytes,
        keys: Sequence[bytes],
    ) -> None:
        """Verify the signature of a call.

        Args:
            given: the call's metadata.
            keys: the valid session keys.

        Raises:
            RestartedError: the call is signed for another start. The caller may sign it for `boot`
                and make it again.
            UnsignedError: the call is refused. The message says why, for example by how much the
                clocks differ.
        """
        time_text, nonce, signature = given.get(TIME), given.get(NONCE), given.get(SIGNATURE)
        boot = given.get(BOOT, b"")
        if not isinstance(time_text, str) or not (
            isinstance(nonce, bytes) and isinstance(signature, bytes)
        ):
            raise UnsignedError(MISSING)
        if not (time_text.isascii() and time_text.isdecimal() and len(time_text) <= 15):
            raise UnsignedError(MISSING)
        if len(nonce) != NONCE_BYTES or not isinstance(boot, bytes):
            raise UnsignedError(MISSING)
        time_ms = int(time_text)
        expected = (_signature(key, method, callee, time_ms, nonce, boot, body) for key in keys)
        if not any(hmac.compare_digest(each, signature) for each in expected):
            raise UnsignedError(WRONG)
        # After the signature: an unsigned call must not fill the table, nor learn the clock.
        self._check_time(time_ms)
        if boot != self.boot:
            raise RestartedError(RESTARTED)
        self._take(nonce, time_ms + SKEW_MS)

    def _check_time(self, time_ms: int) -> None:
        now_ms = self._wall_ms()
        ahead_ms = time_ms - now_ms
        if abs(ahead_ms) > SKEW_MS:
            way = "ahead of" if ahead_ms > 0 else "behind"
            raise UnsignedError(
                f"The clock of the calling worker is {abs(ahead_ms) / 1000:.0f} s {way} that of "
                f"this one; expected at most {SKEW_MS // 1000} s. Set the clocks of both"
            )

    def _take(self, nonce: bytes, until_ms: int) -> None:
        if nonce in self._seen:
            raise UnsignedError(REPLAYED)
        if len(self._seen) >= NONCES_MAX:
            now_ms = self._wall_ms()
            self._seen = {each: until for each, until in self._seen.items() if until >= now_ms}
            if len(self._seen) >= NONCES_MAX:
                raise UnsignedError(FULL)
        self._seen[nonce] = until_ms


def _signature(
    key: bytes, method: str, callee: str, time_ms: int, nonce: bytes, boot: bytes, body: bytes
) -> bytes:
    made = hmac.new(key, digestmod=hashlib.sha256)
    for part in (method.encode(), callee.encode(), str(time_ms).encode(), nonce, boot, body):
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()
