"""`make` says what the machine lacks, and the package that brings it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "check_machine.sh"


def check(folder: Path, java: str | None, python: str = sys.executable) -> tuple[int, str]:
    """Run on a machine whose `java -version` says `java`; None: there is no Java."""
    if java is not None:
        (folder / "bin").mkdir()
        program = folder / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{java}\" 2024-01-01' >&2\n")
        program.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(folder), "PYTHON": python}
    done = subprocess.run(
        ["sh", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("java", ["17", "17.0.13", "21.0.1"])
def test_java_that_will_do(tmp_path: Path, java: str) -> None:
    assert check(tmp_path, java) == (0, "")


@pytest.mark.parametrize(
    ("java", "seen"), [(None, "no java"), ("11.0.2", "found: 11."), ("1.8.0_402", "found: 1.")]
)
def test_java_that_will_not(tmp_path: Path, java: str | None, seen: str) -> None:
    code, said = check(tmp_path, java)
    assert code == 1
    assert "needs Java 17 or newer" in said and seen in said
    assert "apt-get install openjdk-17" in said


def test_no_python(tmp_path: Path) -> None:
    code, said = check(tmp_path, "17", python=str(tmp_path / "python9"))
    assert code == 1
    assert "needs Python 3.11 or newer" in said and "apt-get install python3" in said
