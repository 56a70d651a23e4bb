"""The key that signs calls between workers. The leader alone makes and replaces it.

A worker signs with the key that it has read (`ConfigState.session_key`). Source: KIP-507;
DistributedHerder.checkKeyRotation.

Differs: workers do not read a new key at the same moment. Until all have read it, Java refuses what
another one has signed, and a task that asked for fencing fails for good. Here, any key of the
`KeyRing` is accepted. (A Java worker takes over no key while it restarts connectors, which lasts 5
s for each task that does not stop: its herder's monitor is held.)

Differs: a key whose creation time is further ahead than the lifetime of a key is replaced. By the
clock of a worker that runs ahead it would never expire. For a key that this worker made, its
monotonic clock tells the age. The wall clock may be set, or the machine may sleep, by more than a
key's lifetime.
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
"""Bits of a key if `inter.worker.key.size` is not set, as Java's key generators have them."""
KEY_SIZE: Final = 256
"""Key size of all other algorithms, `HmacSHA256` among them."""

ALSO_TAKEN_MS: Final = 60_000
"""How long a key besides the current one is accepted: before it is read, or once it was
replaced."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys with which a worker signs and verifies calls."""

    current: SessionKeyChanged | None = None
    """The newest key that was read from the config topic. This worker signs with it."""
    also: tuple[bytes, ...] = field(default=(), repr=False)
    """Keys that others may have signed with: those that were replaced a moment ago, and the one
    that this worker has made and others may read first."""


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
        """Time of the last look at the key that was planned; -1: none was."""
        self._also: dict[bytes, int] = {}
        """Keys that are accepted besides the current one, and until when by `now_ms`."""
        self.ring = KeyRing()
        """May be read from any thread."""

    def on_read(self) -> None:
        """Update the key ring after records of the config topic were read."""
        key, former = self._ctx.state.session_key, self.ring.current
        if key is former:
            return
        # A key that was replaced before this worker was ready is used by nobody any more.
        if former is not None and self._ctx.ready:
            self._take_also(former.key)
        self.ring = KeyRing(key, tuple(self._also))

    def _take_also(self, key: bytes) -> None:
        self._also[key] = self._ctx.now_ms + ALSO_TAKEN_MS
        self._ctx.after(ALSO_TAKEN_MS, ForgetKey())
        self.ring = KeyRing(self.ring.current, tuple(self._also))

    def forget(self) -> None:
        """Drop the accepted keys whose time is over."""
        now = self._ctx.now_ms
        self._also = {key: until for key, until in self._also.items() if until > now}
        self.ring = KeyRing(self.ring.current, tuple(self._also))

    def look(self) -> None:
        """Have a key made if this worker is responsible and the present key is missing, expired or
        of another kind. Costs nothing otherwise."""
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
