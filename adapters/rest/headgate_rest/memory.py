"""Settings and calls of the C library that return freed memory to the system."""

import contextlib
import ctypes
import gc
from typing import Final

_LIBRARY: Final = ctypes.CDLL(None)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE_BYTES: Final = 524_288
"""Blocks from this size on are mapped from the system, and unmapped when they are freed. They are
mainly bodies of requests."""
KEPT_BYTES: Final = 1_048_576
"""Free bytes at the end of each thread's heap that the C library keeps."""


def keep_little() -> None:
    """Have the C library keep little freed memory, from now on, in the whole process.

    glibc raises both thresholds by itself, up to 32 and 64 MiB, when large blocks are freed. Each
    thread's heap then keeps that much at its end, and even `malloc_trim` does not return it.
    """
    with contextlib.suppress(AttributeError):  # another C library
        _LIBRARY.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        _LIBRARY.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def give_back() -> None:
    """Return freed memory to the system.

    The C library keeps freed blocks between those in use, often more than a hundred MiB after large
    requests. This takes some milliseconds, in which other threads run. Without `malloc_trim` it
    only collects garbage.
    """
    gc.collect()
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
