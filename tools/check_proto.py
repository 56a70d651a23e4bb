"""Check the files of ``proto/``: ``python tools/check_proto.py``, as `make lint` does.

Two kinds of rules, those of ``buf lint`` (STANDARD, COMMENTS) and ``buf breaking`` (FILE):

- Names, packages and comments are as clients of other languages expect.
- What ``proto/released.txt`` lists is still so. ``--write`` adds what is new to it and removes
  nothing: a client that was made of older files must go on working.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2 as pb

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"
RELEASED = PROTO / "released.txt"

_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_PASCAL = re.compile(r"([A-Z][a-z0-9]*)+")
_PACKAGE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\.v[1-9][0-9]*")
_TYPES = {value: name[5:].lower() for name, value in pb.FieldDescriptorProto.Type.items()}
_LABELS = {value: name[6:].lower() for name, value in pb.FieldDescriptorProto.Label.items()}


def described(folder: Path = PROTO) -> list[pb.FileDescriptorProto]:
    """What the files below `folder` define, comments included."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "set"
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}"]
        subprocess.run(
            [*command, "--include_source_info", f"--descriptor_set_out={out}", *files], check=True
        )
        return list(pb.FileDescriptorSet.FromString(out.read_bytes()).file)


# -- names and comments --


def faults(files: Iterable[pb.FileDescriptorProto]) -> Iterator[str]:
    """What breaks a rule, one line each: the place, and what was expected."""
    for file in files:
        yield from _File(file).faults()


@dataclass(frozen=True)
class _File:
    file: pb.FileDescriptorProto

    def faults(self) -> Iterator[str]:
        file = self.file
        if file.syntax != "proto3":
            yield f"{file.name}: syntax is {file.syntax or 'not given'}, expected proto3"
        if not _PACKAGE.fullmatch(file.package):
            yield f"{file.name}: package {file.package}, expected a name that ends in .v1 or later"
        if str(Path(file.name).parent) != file.package.replace(".", "/"):
            yield f"{file.name}: expected below {file.package.replace('.', '/')}"
        if not _SNAKE.fullmatch(Path(file.name).stem):
            yield f"{file.name}: expected a file name in lower_snake_case"
        if file.public_dependency or file.weak_dependency:
            yield f"{file.name}: public and weak imports are not taken"
        for n, enum in enumerate(file.enum_type):
            yield from self._enum(enum, (5, n))
        for n, message in enumerate(file.message_type):
            yield from self._message(message, (4, n))
        for n, service in enumerate(file.service):
            yield from self._service(service, (6, n))

    def _enum(self, enum: Any, path: tuple[int, ...]) -> Iterator[str]:
        yield from self._named(enum.name, _PASCAL, "PascalCase", path)
        if enum.options.allow_alias:
            yield self._at(enum.name, "allow_alias is not taken")
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
        for n, value in enumerate(enum.value):
            place = (*path, 2, n)
            yield from self._named(value.name, _CONSTANT, "UPPER_SNAKE_CASE", place)
            if not value.name.startswith(prefix):
                yield self._at(value.name, f"expected to begin with {prefix}")
        zero = enum.value[0]
        if zero.number != 0 or not zero.name.endswith("_UNSPECIFIED"):
            yield self._at(zero.name, "expected the first value to be 0 and end in _UNSPECIFIED")

    def _message(self, message: Any, path: tuple[int, ...]) -> Iterator[str]:
        if message.options.map_entry:
            return
        yield from self._named(message.name, _PASCAL, "PascalCase", path)
        for n, one in enumerate(message.field):
            yield from self._named(one.name, _SNAKE, "lower_snake_case", (*path, 2, n))
        made = {one.oneof_index for one in message.field if one.proto3_optional}
        for n, one in enumerate(message.oneof_decl):
            if n not in made:
                yield from self._named(one.name, _SNAKE, "lower_snake_case", (*path, 8, n))
        for n, one in enumerate(message.nested_type):
            yield from self._message(one, (*path, 3, n))
        for n, one in enumerate(message.enum_type):
            yield from self._enum(one, (*path, 4, n))

    def _service(self, service: Any, path: tuple[int, ...]) -> Iterator[str]:
        yield from self._named(service.name, _PASCAL, "PascalCase", path)
        if not service.name.endswith("Service"):
            yield self._at(service.name, "expected to end in Service")
        for n, rpc in enumerate(service.method):
            yield from self._named(rpc.name, _PASCAL, "PascalCase", (*path, 2, n))
            for kind, given in (("Request", rpc.input_type), ("Response", rpc.output_type)):
                expected = f".{self.file.package}.{rpc.name}{kind}"
                if given != expected:
                    yield self._at(rpc.name, f"takes or gives {given}, expected {expected}")

    def _named(
        self, name: str, form: re.Pattern[str], called: str, path: tuple[int, ...]
    ) -> Iterator[str]:
        if not form.fullmatch(name):
            yield self._at(name, f"expected {called}")
        if not self._comments().get(path, "").strip():
            yield self._at(name, "expected a comment above it")

    def _at(self, name: str, text: str) -> str:
        return f"{self.file.name}: {name}: {text}"

    def _comments(self) -> dict[tuple[int, ...], str]:
        found = self.file.source_code_info.location
        return {tuple(one.path): one.leading_comments for one in found}


# -- what was released --


def surface(files: Iterable[pb.FileDescriptorProto]) -> list[str]:
    """All that a client relies on, one line each, sorted."""
    lines: set[str] = set()
    for file in files:
        for enum in file.enum_type:
            lines.update(_enum_lines(enum, file.package))
        for message in file.message_type:
            lines.update(_message_lines(message, file.package))
        for service in file.service:
            for rpc in service.method:
                given = "stream " * rpc.client_streaming + rpc.input_type
                answer = "stream " * rpc.server_streaming + rpc.output_type
                lines.add(f"rpc {file.package}.{service.name}.{rpc.name} ({given}) -> ({answer})")
    return sorted(lines)


def _message_lines(message: Any, outer: str) -> Iterator[str]:
    name = f"{outer}.{message.name}"
    yield f"message {name}"
    for one in message.field:
        kind = one.type_name or _TYPES[one.type]
        label = "explicit " if one.proto3_optional else f"{_LABELS[one.label]} "
        inside = "" if one.proto3_optional or not one.HasField("oneof_index") else " in a oneof"
        yield f"field {name}.{one.name} = {one.number}: {label}{kind}{inside}"
    for inner in message.nested_type:
        yield from _message_lines(inner, name)
    for inner in message.enum_type:
        yield from _enum_lines(inner, name)


def _enum_lines(enum: Any, outer: str) -> Iterator[str]:
    for value in enum.value:
        yield f"enum {outer}.{enum.name}.{value.name} = {value.number}"


def broken(released: Sequence[str], now: Sequence[str]) -> list[str]:
    """Lines of `released` that do not hold any more, one sentence each."""
    there = set(now)
    return [
        f"{line}: it was released and is gone or otherwise now; older clients rely on it"
        for line in released
        if line not in there
    ]


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a rule is broken."""
    files = described()
    now = surface(files)
    released = RELEASED.read_text("utf-8").splitlines() if RELEASED.exists() else []
    wrong = [*faults(files), *broken(released, now)]
    if "--write" in arguments:
        RELEASED.write_text("".join(f"{line}\n" for line in sorted({*released, *now})), "utf-8")
    elif new := sorted(set(now) - set(released)):
        wrong += [f"{line}: new; `make proto` adds it to proto/{RELEASED.name}" for line in new]
    for line in wrong:
        print(f"proto: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
