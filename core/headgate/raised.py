"""What a clause without a name has caught."""

import sys

from headgate.ports import TransportError


def raised() -> BaseException:
    """What is being handled. A client's C code may let out an error that is no exception, so that
    no clause with a name catches it: confluent-kafka does, from within callbacks."""
    found: object = sys.exc_info()[1]
    return found if isinstance(found, BaseException) else TransportError(str(found))
