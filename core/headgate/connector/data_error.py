"""`DataError`, in a module of its own so that every module about values can raise it."""


class DataError(Exception):
    """A record cannot be read or converted. The task follows `errors.tolerance`. Source:
    DataException."""
