"""The key that signs calls between workers: made, and made anew, by the leader alone.

A worker signs with the key that it has read (`ConfigState.session_key`). Source: KIP-507;
DistributedHerder.checkKeyRotation.

Differs: workers do not read a new key at the same moment. What one of them signs in between Java
refuses, and a task that asked to be fenced fails for good; here any key of the `KeyRing` will do.
(A Java worker takes over no key while it restarts connectors, which lasts 5 s for each task that
does not stop: its herder's monitor is held.)

Differs: a key that was made further ahead than its own life is replaced; by the clock of a worker
that runs ahead it would never become too old. How old a key is that this worker made, its own clock
of intervals says: the date's may be set right, or a machine sleep, by more than a key's life.
"""

from dataclasses import dataclass, field
from typing import Final

from headgate.herder.context import Context, ForgetKey, LookAtKey, retry_delay_ms
from headgate.herder.leadership import Leadership
from headgate.herder.messages import MakeSessionKey, SessionKeyMade
from headgate.herder.privileged import WriteSessionKey
from headgate.membership.protocols import RULES
from headgate.topics.config_events import SessionKeyChanged

KEY_SIZES: Final = {"HmacMD5": 512, "HmacSHA1": 512, "HmacSHA384": 384, "HmacSHA512": 512}
"""Bits of a key where `inter.worker.key.size` is not set, as Java's generators have them."""
KEY_SIZE: Final = 256
"""Key size of all other algorithms, `HmacSHA256` among them."""

ALSO_TAKEN_MS: Final = 60_000
"""For how long a key is taken besides the current one: before it was read, or once replaced."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys that a worker knows of."""

    current: SessionKeyChanged | None = None
    """The newest that was read from the config topic; this worker signs with it."""
    also: tuple[bytes, ...] = field(default=(), repr=False)
    """What others may have signed with: keys that were replaced a moment ago, and the one that this
    worker has made and they may read first."""


class SessionKeys:
    def __init__(self, ctx: Context, leadership: Leadership) -> None:
        self._ctx = ctx
        self._leadership = leadership
        self._token = 0
        """Token of the key that is being made; 0: none is."""
        self._writing = False
        self._failures = 0
        self._mine: tuple[bytes, int] = b"", 0
        """The last key that this worker made, and when, on the clock of `now_ms`."""
        self._due_ms = -1
        """When the key is to be looked at, if that was planned."""
        self._also: dict[bytes, int] = {}
        """Keys that are taken besides the current one, and until when by `now_ms`."""
        self.ring = KeyRing()
        """May be read from any thread."""

    def on_read(self) -> None:
        """The config topic was read on."""
        key, former = self._ctx.state.session_key, self.ring.current
        if key is former:
            return
        # What was replaced before this worker was there is nobody's any more.
        if former is not None and self._ctx.ready:
            self._take_also(former.key)
        self.ring = KeyRing(key, tuple(self._also))

    def _take_also(self, key: bytes) -> None:
        self._also[key] = self._ctx.now_ms + ALSO_TAKEN_MS
        self._ctx.after(ALSO_TAKEN_MS, ForgetKey())
        self.ring = KeyRing(self.ring.current, tuple(self._also))

    def forget(self) -> None:
        """The time of some may be over."""
        now = self._ctx.now_ms
        self._also = {key: until for key, until in self._also.items() if until > now}
        self.ring = KeyRing(self.ring.current, tuple(self._also))

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
        rules = RULES.get(self._ctx.membership.protocol)
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
            self._take_also(made.key)
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
