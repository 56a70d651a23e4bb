"""How long a call is tried again if no connection to the worker that would execute it can be made.

Java answers at once (500, "IO Error trying to forward REST request"). A leader that has just died
cannot be reached either, but the group will soon have another one. So a call waits for the next
leader, but only at an address that was reached before.
"""

from typing import Final

from headgate.herder.messages import ErrorKind, Failure
from headgate.herder.open_call import OpenCall
from headgate.herder.settings import HerderSettings

NEVER_REACHED_MS: Final = 3_000
"""How long an address is tried that was never reached. Its worker may have begun to listen just
now, or its name may be new."""
ELECTED_MS: Final = 2_000
"""Time from the heartbeat after the end of a dead worker's session until there is a next leader."""
ADVICE: Final = (
    "Expected a worker there: check its rest.advertised.host.name, rest.advertised.port and "
    "rest.advertised.listener (headgate doctor tries the address of every member). If it has "
    "died, ask again"
)


class Reach:
    """Addresses at which workers have answered this one. It notes in each call whom the call has
    reached."""

    def __init__(self, settings: HerderSettings) -> None:
        noticed_ms = settings.session_timeout_ms + settings.heartbeat_interval_ms
        self._death_ms = noticed_ms + ELECTED_MS
        self._reached: set[str] = set()

    def asks(self, call: OpenCall, url: str, now_ms: int) -> None:
        """Note that `call` is forwarded to the worker at `url`."""
        if call.asked_url != url:
            call.asked_url, call.tried_since_ms, call.unreached = url, now_ms, ""

    def answered(self, call: OpenCall) -> None:
        """Note that the worker at `OpenCall.asked_url` has answered."""
        self._reached.add(call.asked_url)
        call.asked_url = call.unreached = ""

    def failed(self, call: OpenCall, told: Failure, now_ms: int) -> Failure | None:
        """Note that no connection was made. Return the answer to the caller; None: try again."""
        call.unreached = told.message
        reached = call.asked_url in self._reached
        patience_ms = self._death_ms if reached else NEVER_REACHED_MS
        if now_ms - call.tried_since_ms < patience_ms:
            return None
        return unreached(call, now_ms)


def unreached(call: OpenCall, now_ms: int) -> Failure:
    """Return the failure that tells the caller of `call` what was seen."""
    if ADVICE in call.unreached:  # the words of another worker, about the one that it asked
        return Failure(ErrorKind.UNREACHABLE, call.unreached)
    role = "The leader" if call.asked_leader else "The worker that holds this"
    tried_s = (now_ms - call.tried_since_ms) / 1000
    text = f"{role} at {call.unreached} (tried for {tried_s:.1f} s). {ADVICE}"
    return Failure(ErrorKind.UNREACHABLE, text)
