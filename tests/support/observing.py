"""`headgate observe` as its user calls it."""

import json
import subprocess
import sys
from typing import Any


def observe(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headgate_runtime.cli", "observe", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def observed(*options: str) -> Any:
    """What it shows with ``--json``."""
    done = observe(*options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
