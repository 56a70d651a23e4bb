"""The generated code that is committed is what the .proto files give."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_generating_again_gives_the_committed_files() -> None:
    spec = importlib.util.spec_from_file_location("make_proto", ROOT / "tools/make_proto.py")
    assert spec is not None and spec.loader is not None
    make_proto = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_proto)
    made = {str(path): text for path, text in make_proto.generated()}
    folder = make_proto.PACKAGE
    there = {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*_pb2*.py*")
        if "__pycache__" not in path.parts
    }
    assert made == there, "run `make proto` and commit what it writes"
