"""`headgate doctor` as a command, and what it prints."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import javaproperties
import pytest
from support.commands.worker import headgate
from support.kafka.rights import PASSWORD

Doctored = subprocess.CompletedProcess[str]


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[[dict[str, str]], Doctored]:
    """Return a function that runs `headgate doctor` on a worker's properties."""

    def ask(of: dict[str, str]) -> Doctored:
        file = tmp_path / "worker.properties"
        file.write_text(javaproperties.dumps(of, timestamp=False))
        return headgate("doctor", str(file))

    return ask


def lines_of(done: Doctored) -> str:
    """Return the output with each check in one line, since the command wraps long ones. Fails if
    the output shows the password."""
    assert PASSWORD not in done.stdout + done.stderr
    return " ".join(done.stdout.split())
