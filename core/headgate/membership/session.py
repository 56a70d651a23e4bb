"""A member's own view of its session with the coordinator."""


class Session:
    """The session as the member counts it: from the *sending* of the last request that was
    answered. The coordinator's own count began then or later, so this one ends first."""

    def __init__(self, timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.heartbeat_ms = 0
        """When the next heartbeat is due."""
        self._heard_ms: int | None = None

    @property
    def open(self) -> bool:
        return self._heard_ms is not None

    @property
    def deadline_ms(self) -> int | None:
        """When the session ends unless a request is answered; None if there is no session."""
        return None if self._heard_ms is None else self._heard_ms + self.timeout_ms

    def heard(self, sent_ms: int) -> None:
        """Note that a request sent at `sent_ms` was answered as one of a member."""
        self._heard_ms = sent_ms if self._heard_ms is None else max(self._heard_ms, sent_ms)

    def silent_ms(self, now_ms: int) -> int:
        return 0 if self._heard_ms is None else now_ms - self._heard_ms

    def beat(self, now_ms: int) -> None:
        """Note that a heartbeat, or a request that counts as one, is sent now."""
        self.heartbeat_ms = now_ms + self.heartbeat_interval_ms

    def end(self) -> None:
        self._heard_ms = None
