"""The error of one record's data, apart so that every module of values can raise it."""


class DataError(Exception):
    """A record cannot be read or converted. The task follows `errors.tolerance`. Source:
    DataException."""
