"""The key that signs calls between workers: made, and made anew, by the leader alone.

A worker signs and verifies with the key that it has read (`ConfigState.session_key`). Source:
KIP-507; DistributedHerder.checkKeyRotation.

Differs: a key that was made further ahead than its own life is replaced; by the clock of a worker
that runs ahead it would never become too old. How old a key is that this worker made, its own clock
of intervals says: the date's may be set right, or a machine sleep, by more than a key's life.
"""

from typing import Final

from headgate.herder.context import Context, LookAtKey, retry_delay_ms
from headgate.herder.leadership import Leadership
from headgate.herder.messages import MakeSessionKey, SessionKeyMade
from headgate.herder.privileged import WriteSessionKey
from headgate.membership.protocols import RULES

KEY_SIZES: Final = {"HmacMD5": 512, "HmacSHA1": 512, "HmacSHA384": 384, "HmacSHA512": 512}
"""Bits of a key where `inter.worker.key.size` is not set, as Java's generators have them."""
KEY_SIZE: Final = 256
"""Of all others, `HmacSHA256` among them."""


class SessionKeys:
    def __init__(self, ctx: Context, leadership: Leadership) -> None:
        self._ctx = ctx
        self._leadership = leadership
        self._token = 0
        """Of the key that is being made; 0: none is."""
        self._writing = False
        self._failures = 0
        self._mine: tuple[bytes, int] = b"", 0
        """The last key that this worker made, and when, on the clock of `now_ms`."""
        self._due_ms = -1
        """When the key is to be looked at, if that was planned."""

    def look(self) -> None:
        """Have a key made where there is none that will do. Costs nothing while there is one."""
        if not self._responsible() or self._token or self._writing:
            return
        settings, key = self._ctx.settings, self._ctx.state.session_key
        asked = settings.key_size or KEY_SIZES.get(settings.key_algorithm, KEY_SIZE)
        size = -(-asked // 8) * 8  # whole bytes, as Java's generators make them
        if key is not None and key.algorithm == settings.key_algorithm and len(key.key) * 8 == size:
            if not settings.key_ttl_ms:
                return  # for ever
            made, made_ms = self._mine
            mine = key.key == made
            made_ms = made_ms if mine else key.creation_timestamp_ms
            left_ms = made_ms + settings.key_ttl_ms
            left_ms -= self._ctx.now_ms if mine else self._ctx.wall_ms
            if 0 < left_ms <= 2 * settings.key_ttl_ms:
                self._look_in(left_ms)
                return
        self._token = self._ctx.token()
        self._ctx.emit(MakeSessionKey(self._token, settings.key_algorithm, size))

    def _responsible(self) -> bool:
        rules = RULES.get(self._ctx.standing.protocol)
        signed = rules is not None and rules.signed
        return self._ctx.settings.session_keys and signed and self._leadership.ready

    def _look_in(self, delay_ms: int) -> None:
        due_ms = self._ctx.now_ms + delay_ms
        if due_ms != self._due_ms:
            self._due_ms = due_ms
            self._ctx.after(delay_ms, LookAtKey())

    def on_made(self, made: SessionKeyMade) -> None:
        if made.token != self._token:
            return
        self._token = 0
        if self._responsible():
            self._writing = True
            self._mine = made.key, self._ctx.now_ms
            algorithm = self._ctx.settings.key_algorithm
            self._leadership.submit(WriteSessionKey(made.key, algorithm, made.created_ms))

    def on_written(self, *, written: bool) -> None:
        self._writing = False
        if written:
            self._failures = 0
            self.look()
        else:
            self._failures += 1
            self._look_in(retry_delay_ms(self._failures))
