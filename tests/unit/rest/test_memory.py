"""Memory is freed after large requests, and other threads run while large JSON is read."""

import asyncio
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate_rest.heavy_thread import HeavyThread, take_short_turns

TESTS = Path(__file__).resolve().parents[2]
FREED_MIB = 50
PROGRAM = """
import threading
from support.rest.world import service

def rss_mib():
    [line] = [each for each in open("/proc/self/status") if each.startswith("VmRSS")]
    return int(line.split()[1]) / 1024

def work():
    bytearray(30_000_000)  # freed, it raises glibc's thresholds
    bodies = [bytearray(b"x" * 1_000_000) for _ in range(50)]
    bodies.clear()
    done.set()
    threading.Event().wait()

made = service()
made.start()
before, done = rss_mib(), threading.Event()
threading.Thread(target=work, daemon=True).start()
done.wait()
print(rss_mib() - before)
made.close()
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory in threads' heaps"
)
def test_what_bodies_took_is_given_back_while_their_thread_lives() -> None:
    """glibc keeps up to 64 MiB at the end of each thread's heap, for good."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=TESTS, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < FREED_MIB / 2


def test_the_loop_gets_its_turn_while_large_json_is_read() -> None:
    """A call of the system gives the interpreter up, and Python gives it back after 5 ms: a turn
    with a hundred calls of sockets took half a second, and a health check as long."""

    def busy() -> None:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            pass

    async def calls() -> float:
        heavy = HeavyThread()
        reading = asyncio.ensure_future(heavy.run(busy))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        for _ in range(100):
            time.sleep(0.000_1)
        took = time.monotonic() - begun
        await reading
        heavy.close()
        return took

    sys.setswitchinterval(0.005)
    assert asyncio.run(calls()) < 0.3
    short_s = sys.getswitchinterval()
    for _ in range(3):
        take_short_turns()
    assert sys.getswitchinterval() == short_s, "it becomes ever shorter"
