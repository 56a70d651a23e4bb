"""Memory that was freed goes back to the system."""

import contextlib
import ctypes
import gc
from typing import Final

_LIBRARY: Final = ctypes.CDLL(None)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE_BYTES: Final = 524_288
"""Blocks of this size, bodies of requests above all, come from the system and go back to it."""
KEPT_BYTES: Final = 1_048_576
"""Free bytes at the end of each thread's heap that the C library keeps."""


def keep_little() -> None:
    """Have the C library keep little of what is freed, from now on in the whole process.

    glibc raises both thresholds by itself, up to 32 and 64 MiB, when large blocks are freed. Each
    thread's heap then keeps that much at its end, which `malloc_trim` does not give back either.
    """
    with contextlib.suppress(AttributeError):  # another C library
        _LIBRARY.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        _LIBRARY.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def give_back() -> None:
    """The C library keeps what was freed between things that are in use, often more than a hundred
    MiB after large requests. It takes some milliseconds, in which other threads run. Where the C
    library has no `malloc_trim`, nothing is done."""
    gc.collect()
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
