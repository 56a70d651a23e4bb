"""Exceptions of the core. A rejection of a user's request is data, not one of these."""


class CoreError(Exception):
    """Base of every exception that the core raises."""


class LogOrderError(CoreError):
    """The caller handed over records whose offsets do not rise."""


class IllegalTransitionError(CoreError):
    """A machine was given an input that its table does not allow in its state."""


class NoMembersError(CoreError):
    """An assignment was asked for without members."""
