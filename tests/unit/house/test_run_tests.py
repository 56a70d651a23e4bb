"""What `make test` runs its tests with."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "run_tests.sh"


def layers(folder: Path, seed: dict[str, str]) -> tuple[list[str], str]:
    """What each layer's Python found in its environment, and all that was said."""
    python = folder / "python"
    python.write_text('#!/bin/sh\necho "seed:${HEADGATE_SEED-none}"\n')
    python.chmod(0o755)
    environment = {key: text for key, text in os.environ.items() if key != "HEADGATE_SEED"}
    done = subprocess.run(
        ["sh", str(SCRIPT), str(folder)],
        env={**environment, **seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if line.startswith("seed:")], done.stdout


def test_a_seed_that_was_left_in_the_environment_cuts_no_test(tmp_path: Path) -> None:
    found, said = layers(tmp_path, {"HEADGATE_SEED": "7"})
    assert len(found) == 3 and set(found) == {"seed:none"}
    assert "HEADGATE_SEED=7 is passed over" in said


def test_nothing_is_said_of_a_seed_that_is_not_there(tmp_path: Path) -> None:
    found, said = layers(tmp_path, {})
    assert len(found) == 3 and set(found) == {"seed:none"}
    assert "HEADGATE_SEED" not in said
