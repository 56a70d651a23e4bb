"""What a call has raised, held for whoever else is to raise it."""

from types import TracebackType

from headgate.ports import TransportError


def as_exception(caught: object) -> BaseException:
    """What a clause without a name has caught. A client's C code may let out an error that is no
    exception: confluent-kafka does, from within callbacks. That becomes a TransportError."""
    return caught if isinstance(caught, BaseException) else TransportError(str(caught))


class HeldError:
    """``with held:`` goes on behind its block whatever is raised in it, and `release` raises that.

    Also what no clause with a name catches (`as_exception`). An error is held no longer than until
    it was let go: its traceback holds all that was there where it was raised, such as a client with
    its threads.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self.text = ""
        """Text of the error that was raised; it stays. Empty: nothing was raised."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> bool:
        if kind is not None:
            self._error = as_exception(error)
            self.text = str(error) or kind.__name__
        return True

    def release(self) -> None:
        """Raises what was raised, if anything was and was not let go before."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # else it would hold itself

    def drop(self) -> None:
        """Nobody will ask."""
        self._error = None
