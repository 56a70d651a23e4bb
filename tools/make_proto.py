"""Writes the generated Python code of ``proto/`` into ``adapters/grpc/headgate_grpc``.

Run it by ``python tools/make_proto.py``.

The protobuf package is ``headgate.v1``. Its Python is ``headgate_grpc.v1``, because the Python
package ``headgate`` is the core. So the imports in generated code are rewritten. Only the beginning
of a line is, because the same letters occur within serialized descriptors.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"
PACKAGE = ROOT / "adapters/grpc/headgate_grpc"
_FROM = re.compile(r"^from headgate\.", re.MULTILINE)


def generated() -> Iterator[tuple[Path, str]]:
    """Yield the path, relative to `PACKAGE`, and the text of each generated file."""
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = Path(sys.executable).parent
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}"),
            f"--plugin=protoc-gen-mypy={bin_folder / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={bin_folder / 'protoc-gen-mypy_grpc'}",
            *(f"--{kind}_out={folder}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")),
            *(str(path.relative_to(PROTO)) for path in sorted(PROTO.rglob("*.proto"))),
        ]
        subprocess.run(command, check=True)
        base = Path(folder) / "headgate"
        for path in sorted(base.rglob("*.py*")):
            if path.name.endswith(("_pb2_grpc.py", "_pb2_grpc.pyi")) and _is_empty(path):
                continue
            yield path.relative_to(base), _FROM.sub("from headgate_grpc.", path.read_text())


def _is_empty(path: Path) -> bool:
    """Return whether a file has no service. `connector.proto` has messages only."""
    source = path.with_name(path.name.partition("_pb2_grpc")[0] + "_pb2_grpc.py")
    return "class " not in source.read_text()


def main() -> None:
    for path, text in generated():
        target = PACKAGE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
