"""Exceptions of the core. A rejection of a user's request is data and no exception."""


class CoreError(Exception):
    """Base of every exception that the core raises."""


class LogOrderError(CoreError):
    """The caller passed records whose offsets do not rise."""


class IllegalTransitionError(CoreError):
    """A machine got an input that its table does not allow in its present state."""


class MissingExtraError(CoreError):
    """A package is missing that an extra of the distribution would install.

    The message names the extra and the command that installs it. Adapters, connectors and the
    runtime raise it. A task that raises it fails whatever its `errors.tolerance` is, since no
    record is bad.
    """

    def __init__(self, extra: str) -> None:
        super().__init__(f'this needs headgate[{extra}]: pip install "headgate[{extra}]"')
        self.extra = extra


class NoMembersError(CoreError):
    """An assignment was to be computed for a group without members."""
