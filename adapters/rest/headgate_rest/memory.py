"""Memory that was freed goes back to the system."""

import ctypes
from typing import Final

_LIBRARY: Final = ctypes.CDLL(None)


def give_back() -> None:
    """The C library keeps what was freed between things that are in use, often more than a hundred
    MiB after large requests. It takes some milliseconds, in which other threads run. Where the C
    library has no `malloc_trim`, nothing is done."""
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
