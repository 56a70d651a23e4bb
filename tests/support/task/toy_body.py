"""Task bodies for tests of the launcher. Their argument is JSON, and they write what happens to its
`file`."""

import json
import os
import time
from pathlib import Path

from pyspark import TaskContext


def resident(argument: str) -> str:
    """Write pid, pid of the parent and attempt to `file`, then stay until ``<file>.stop``
    exists."""
    given = json.loads(argument)
    file = Path(given["file"])
    context = TaskContext.get()
    attempt = context.attemptNumber() if context else -1
    with file.open("a") as out:
        out.write(json.dumps({"pid": os.getpid(), "daemon": os.getppid(), "attempt": attempt}))
        out.write("\n")
    deadline = time.monotonic() + given.get("seconds", 60)
    while not Path(f"{file}.stop").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return "stopped"


def raising(argument: str) -> str:
    """Fail as a connector's code may."""
    raise ValueError(f"no good: {argument}")


def threads(argument: str) -> str:
    """Raise with the number of threads of the daemon that forked this process."""
    parent = os.getppid()
    raise RuntimeError(f"daemon has {len(list(Path(f'/proc/{parent}/task').iterdir()))} threads")


def burning(argument: str) -> str:
    """Use one second of CPU, and write what this process used to `file`."""
    end = time.process_time() + 1
    while time.process_time() < end:
        pass
    file = Path(json.loads(argument)["file"])
    used = {"pid": os.getpid(), "daemon": os.getppid(), "cpu_s": time.process_time()}
    file.write_text(json.dumps(used) + "\n")
    return "stopped"
