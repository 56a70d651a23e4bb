"""An exception that was caught in one place and is raised in another."""

from types import TracebackType

from headgate.ports import TransportError


def as_exception(caught: object) -> BaseException:
    """Return what a bare ``except`` has caught, as an exception. A client's C code may raise an
    object that is no exception: confluent-kafka does so from within callbacks. It becomes a
    TransportError."""
    return caught if isinstance(caught, BaseException) else TransportError(str(caught))


class HeldError:
    """A context manager that catches everything raised in its ``with`` block; `release` raises it.

    It also catches what no ``except`` with a class catches (`as_exception`). Let the error go soon:
    its traceback keeps all objects alive that were in use where it was raised, such as a client
    with its threads.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self.text = ""
        """Text of the error that was raised, kept after `release`. Empty if nothing was raised."""

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
        """Raise the held error, if there is one."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # else the frame and the error would refer to each other

    def drop(self) -> None:
        """Drop the held error, since nobody will raise it."""
        self._error = None
