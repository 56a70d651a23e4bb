"""Headgate as `pip install headgate` leaves it: the wheel in an environment without any extra."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
UV = Path(sys.executable).with_name("uv")
RUN_S = 120.0


@dataclass(frozen=True)
class Installed:
    """A virtual environment that has the wheel of Headgate and the packages that it requires."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(
        self, *arguments: str | Path, cwd: Path, text: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``headgate`` with these arguments and `text` as its standard input."""
        return run([self.folder / "bin" / "headgate", *arguments], cwd=cwd, text=text)


def install(folder: Path) -> Installed:
    """Build the wheel and install it, without extras, into an environment below `folder`."""
    run([UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable,
         "--out-dir", folder / "dist", ROOT], cwd=folder, check=True)  # fmt: skip
    (wheel,) = (folder / "dist").glob("headgate-*.whl")
    installed = Installed(folder / "venv")
    run([UV, "venv", "--python", sys.executable, installed.folder], cwd=folder, check=True)
    run([UV, "pip", "install", "--python", installed.python, wheel], cwd=folder, check=True)
    return installed


def run(
    command: Sequence[str | Path], *, cwd: Path, text: str = "", check: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Run a command whose environment shows nothing of this checkout or of its virtual
    environment."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        command, cwd=cwd, env=env, input=text, capture_output=True, text=True, timeout=RUN_S
    )
    if check:
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done
