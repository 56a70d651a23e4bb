"""Check the files of ``proto/`` with buf: ``python tools/check_proto.py``, as `make lint` does.

- ``buf lint``: names, packages and comments are as clients of other languages expect.
- ``buf breaking``: whatever ``proto/released.yaml`` describes is still so. A client that was made
  of older files must go on working.
- ``proto/released.yaml`` describes all there is. ``--write``, as `make proto` has it, writes it
  anew, unless a rule is broken. So it only grows. To take back what no release had yet, take the
  file from the main branch first.
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
    """What breaks a rule, one line each: the place, and what was expected."""
    found = _buf("lint", folder)
    released = folder / RELEASED
    if released.exists():
        found += _buf("breaking", folder, "--against", released)
    return found


def is_current(folder: Path = PROTO) -> bool:
    """Whether the baseline in `folder` describes its files as they are."""
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
    """The exit code: 1 if a rule is broken."""
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
