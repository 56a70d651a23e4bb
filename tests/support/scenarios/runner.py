"""Scenarios: stories as text files under ``specs/``, run by `tests/scenarios/test_scenarios.py`.

A file is one story. It begins with comments (``#``) that say what it shows and where that comes
from. A block is a command line, input lines, ``----``, the output, a blank line:

    # A connector that was read is STARTED. Source: KafkaConfigBackingStore.
    log
    connector-orders {"properties":{}}
    ----
    offset=1

    target-state orders
    ----
    orders: STARTED

The words of a command line are its name, then arguments, ``name=value`` or plain; quotes keep a
word with spaces together. An output that has blank lines itself stands between two lines ``----``.
All blocks of a file act on one `World`, which the file's directory under ``specs/`` chooses.

To add commands, put ``<subject>.py`` beside this module with

    WORLDS = {"<directory>": MyWorld}

where `MyWorld` derives from `World` and has a method ``do_<command>`` (dashes as underscores) for
each command, which takes the `Block` and returns the output: a string or lines. A `CoreError` it
raises is shown as output; anything else fails the test.

``pytest tests/scenarios --rewrite`` fills in the outputs; explain every line of that diff. The
commands of each directory are in `docs/contribute/scenarios.md`.
"""

import importlib
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.errors import CoreError

SEPARATOR = "----"


@dataclass
class Block:
    """One command with its input and the output that the file expects."""

    file: str
    line: int
    command_line: str
    input: list[str] = field(default_factory=list)
    expected: str = ""
    before: list[str] = field(default_factory=list)
    """Comments and blank lines before the block, as they stand in the file."""

    @property
    def command(self) -> str:
        return self.command_line.split(maxsplit=1)[0]

    @property
    def words(self) -> list[str]:
        """Arguments that are not ``name=value``."""
        return [word for word in self._arguments() if "=" not in word]

    @property
    def options(self) -> dict[str, str]:
        """Arguments of the form ``name=value``."""
        return dict(word.split("=", 1) for word in self._arguments() if "=" in word)

    def _arguments(self) -> list[str]:
        return shlex.split(self.command_line)[1:]

    def where(self) -> str:
        return f"{self.file}:{self.line}"


class World:
    """The object on which the blocks of one scenario file act. Each file gets a new one."""

    def run(self, block: Block) -> str:
        method: Callable[[Block], str | Iterable[str]] | None = getattr(
            self, "do_" + block.command.replace("-", "_"), None
        )
        if method is None:
            known = sorted(
                name[3:].replace("_", "-") for name in dir(self) if name.startswith("do_")
            )
            raise ScenarioError(
                f"{block.where()}: no command {block.command!r}; here are {', '.join(known)}"
            )
        try:
            output = method(block)
        except CoreError as error:
            output = f"{type(error).__name__}: {error}"
        text = output if isinstance(output, str) else "\n".join(output)
        return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


class ScenarioError(Exception):
    """A scenario file has a syntax error, or two worlds claim one directory."""


def parse(file: str, text: str) -> tuple[list[Block], list[str]]:
    """Return the blocks of a scenario file, and the lines after the last one."""
    lines = text.split("\n")
    blocks: list[Block] = []
    before: list[str] = []
    position = 0
    while position < len(lines):
        line = lines[position]
        if not line.strip() or line.startswith("#"):
            before.append(line)
            position += 1
            continue
        block = Block(file, position + 1, line, before=before)
        before = []
        position = _read_input(lines, position + 1, block)
        position = _read_output(lines, position, block)
        blocks.append(block)
    return blocks, before


def _read_input(lines: list[str], position: int, block: Block) -> int:
    while position < len(lines) and lines[position] != SEPARATOR:
        if not lines[position].strip():
            raise ScenarioError(
                f"{block.file}:{position + 1}: a blank line in the input of "
                f"{block.command!r}, expected {SEPARATOR!r} and then its output"
            )
        block.input.append(lines[position])
        position += 1
    if position == len(lines):
        raise ScenarioError(f"{block.where()}: {block.command!r} has no {SEPARATOR!r}")
    return position + 1


def _read_output(lines: list[str], position: int, block: Block) -> int:
    fenced = position < len(lines) and lines[position] == SEPARATOR
    if fenced:
        position += 1
    output: list[str] = []
    while position < len(lines):
        line = lines[position]
        if line == SEPARATOR if fenced else not line.strip():
            break
        output.append(line)
        position += 1
    block.expected = "\n".join(output)
    return position + 1 if fenced else position


def render(blocks: Iterable[Block], outputs: Iterable[str], after: list[str]) -> str:
    """Return the text of the file with `outputs` in place of the expected outputs."""
    lines: list[str] = []
    for block, output in zip(blocks, outputs, strict=True):
        lines += [*block.before, block.command_line, *block.input, SEPARATOR]
        output_lines = output.split("\n") if output else []
        if "" in output_lines or SEPARATOR in output_lines:
            lines += [SEPARATOR, *output_lines, SEPARATOR]
        else:
            lines += output_lines
    return "\n".join(lines + after)


def worlds() -> Mapping[str, Callable[[], World]]:
    """Return every entry of ``WORLDS`` in the modules beside this one."""
    found: dict[str, Callable[[], World]] = {}
    for path in sorted(set(Path(__file__).parent.glob("*.py")) - {Path(__file__)}):
        module: Any = importlib.import_module(f"support.scenarios.{path.stem}")
        for directory, make in module.WORLDS.items():
            if directory in found:
                raise ScenarioError(f"{path.name}: specs/{directory} has a world already")
            found[directory] = make
    return found
