"""Checks the files of ``proto/`` with buf. `make lint` runs ``python tools/check_proto.py``.

- ``buf lint``: names, packages and comments are as clients in other languages expect.
- ``buf breaking``: nothing that ``proto/released.yaml`` describes has changed. So a client that was
  generated from older files still works.
- ``proto/released.yaml`` describes all present definitions. With ``--write`` (`make proto`) it is
  written again, unless a rule is broken. So it only grows. To remove something that no release had
  yet, restore the file from the main branch first.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"
RELEASED = "released.yaml"
"""The descriptors of all files, without comments, as ``buf build`` writes them."""
BUF = Path(sys.executable).with_name("buf")


def faults(folder: Path = PROTO) -> list[str]:
    """Return the broken rules, one line each, with the place and what was expected."""
    found = _buf("lint", folder)
    released = folder / RELEASED
    if released.exists():
        found += _buf("breaking", folder, "--against", released)
    return found


def is_current(folder: Path = PROTO) -> bool:
    """Return whether ``released.yaml`` in `folder` describes the present files there."""
    if not (folder / RELEASED).exists():
        return False
    with tempfile.TemporaryDirectory() as temporary:
        images = []
        for number, source in enumerate((folder, folder / RELEASED)):
            image = Path(temporary) / f"{number}.binpb"
            _build(source, image)
            images.append(image.read_bytes())
    return images[0] == images[1]


def write(folder: Path = PROTO) -> None:
    _build(folder, folder / RELEASED)


def _build(source: Path, target: Path) -> None:
    command: list[Path | str] = [BUF, "build", source, "--exclude-source-info", "-o", target]
    subprocess.run(command, check=True)


def _buf(command: str, *arguments: Path | str) -> list[str]:
    done = subprocess.run([BUF, command, *arguments], capture_output=True, text=True, check=False)
    said = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    if done.returncode != 0 and not said:
        said = [f"buf {command} ended with code {done.returncode}"]
    return said


def main(arguments: Sequence[str]) -> int:
    """Check the files. Returns the exit code: 1 if a rule is broken."""
    wrong = faults()
    if not wrong and not is_current():
        if "--write" in arguments:
            write()
        else:
            wrong = [f"proto/{RELEASED} lacks something new: `make proto` adds it"]
    for line in wrong:
        print(f"proto: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
