"""Rules of the house on which a reader relies, such as allowed imports and the length of
functions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE_ROOTS = {
    "headgate": ROOT / "core",
    "headgate_arrow": ROOT / "adapters/arrow",
    "headgate_embedded": ROOT / "adapters/embedded",
    "headgate_grpc": ROOT / "adapters/grpc",
    "headgate_kafka": ROOT / "adapters/kafka",
    "headgate_registry": ROOT / "adapters/registry",
    "headgate_rest": ROOT / "adapters/rest",
    "headgate_spark": ROOT / "adapters/spark",
    "headgate_runtime": ROOT / "runtime",
    "headgate_connectors": ROOT / "connectors",
}
CORE_ALLOWED = {
    *("__future__", "abc", "base64", "binascii", "bisect", "collections", "dataclasses"),
    *("datetime", "decimal", "enum", "fractions"),
    *("functools", "hashlib", "heapq", "hmac", "itertools", "json", "math", "operator", "re"),
    *("struct", "types", "typing", "zlib"),
}
ADAPTERS = (
    "headgate_arrow",
    "headgate_embedded",
    "headgate_grpc",
    "headgate_kafka",
    "headgate_registry",
    "headgate_rest",
    "headgate_spark",
)
MAY_IMPORT = {
    "headgate": {"headgate"},
    **{adapter: {"headgate", adapter} for adapter in ADAPTERS},
    # The tables of Arrow's and Avro's types serve no port: code with such data reads it.
    "headgate_connectors": {
        *("headgate", "headgate_arrow", "headgate_registry", "headgate_connectors"),
    },
    "headgate_embedded": {"headgate", "headgate_arrow", "headgate_embedded"},
    # Connectors that run on Spark share types, tables and manifests with those that do not.
    "headgate_spark": {"headgate", "headgate_arrow", "headgate_connectors", "headgate_spark"},
    "headgate_runtime": {"headgate", "headgate_runtime", *ADAPTERS},
}
NEED_ADAPTERS = {
    "headgate_runtime.remote.over_grpc",
    "headgate_runtime.remote.over_rest",
}
"""Modules of the runtime that need an adapter. They are imported lazily themselves."""
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 600


def modules() -> Iterator[tuple[str, Path]]:
    """All but the generated ones."""
    for package, root in SOURCE_ROOTS.items():
        for path in sorted((root / package).rglob("*.py")):
            if not path.stem.endswith(("_pb2", "_pb2_grpc")):
                yield package, path


def module_name(path: Path) -> str:
    """Return the name of a module of the runtime."""
    return ".".join(path.relative_to(SOURCE_ROOTS["headgate_runtime"]).with_suffix("").parts)


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(imported module, line, at the top level of the module) of every import statement."""
    tree = ast.parse(path.read_text())
    top = set(ast.iter_child_nodes(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, node in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno, node in top


def test_the_core_asks_no_clock() -> None:
    """The core imports `datetime` for values; what reads the machine's clock or zone is barred."""
    clock = ("now", "today", "utcnow")
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} calls {node.func.attr}"
        for package, path in modules()
        if package == "headgate"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in clock
        and ast.unparse(node.func.value).rpartition(".")[2] in ("date", "datetime")
    ]
    assert not wrong


def test_the_core_imports_only_what_is_pure() -> None:
    wrong = []
    for package, path in modules():
        if package != "headgate":
            continue
        allowed = set(CORE_ALLOWED)
        if "simulation" in path.parts:
            allowed.add("random")
        if path.name == "__init__.py":
            allowed.add("importlib")  # public names are imported when they are first used
        wrong += [
            f"{path.relative_to(ROOT)}:{line} imports {name}"
            for name, line, _ in imports(path)
            if name.split(".")[0] not in allowed | {"headgate"}
        ]
    assert not wrong


def test_imports_run_one_way() -> None:
    wrong = []
    for package, path in modules():
        for name, line, _ in imports(path):
            target = name.split(".")[0]
            if target in SOURCE_ROOTS and target not in MAY_IMPORT[package]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {package} imports {name}")
    assert not wrong


def test_runtime_imports_adapters_lazily() -> None:
    """A worker on one transport needs nothing of another installed."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name} at its top"
        for package, path in modules()
        if package == "headgate_runtime"
        for name, line, at_top in imports(path)
        if at_top
        and (name in NEED_ADAPTERS or name.split(".")[0] in ADAPTERS)
        and module_name(path) not in NEED_ADAPTERS
    ]
    assert not wrong


@pytest.mark.parametrize(
    "folder",
    ["core", "adapters", *(f"adapters/{name.removeprefix('headgate_')}" for name in ADAPTERS)],
)
def test_source_roots_are_no_packages(folder: str) -> None:
    """A package `adapters/grpc` would hide the real `grpc`."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_functions_and_modules_are_short() -> None:
    wrong = []
    for _, path in modules():
        text = path.read_text()
        if text.count("\n") > MODULE_LINES_MAX:
            wrong.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines}")
    assert not wrong


def test_nothing_of_one_machine_is_written_down() -> None:
    """No address of a package index in what pins the packages."""
    for path in (ROOT / "requirements").iterdir():
        assert "://" not in path.read_text(), path


def _imported_files() -> dict[str, set[str]]:
    """Return the modules that each module imports, inside functions and for types alone, too."""
    names = {
        ".".join(path.relative_to(SOURCE_ROOTS[package]).with_suffix("").parts): path
        for package, path in modules()
    }
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names} & set(names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= (inner | {node.module}) & set(names)
        found[name].discard(name)
    return found


def circle_in(imported: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a loop, sorted; empty if there is none."""
    left = dict(imported)
    while free := [name for name, targets in left.items() if not targets & set(left)]:
        for name in free:
            del left[name]
    users = {target for targets in left.values() for target in targets}
    return sorted(name for name in left if name in users)


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circle_in(_imported_files()) == []


def test_a_circle_is_seen() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]


FRAGMENT = ("Of ", "That ", "By ", "Its ", "Their ", "Those ", "Them ", "There ", "Whose ")
RIDDLE = re.compile(r"\b(by|to|of|for|with|from) who\b")


def documentation(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of every docstring: of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text.strip()
            case _:
                pass


def test_docstrings_name_their_subject() -> None:
    """An editor shows a docstring alone: "Of the last join." says nothing there."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {text.splitlines()[0]}"
        for _, path in modules()
        for line, text in documentation(ast.parse(path.read_text()))
        if text.startswith(FRAGMENT) or RIDDLE.search(text)
    ]
    assert not wrong


@pytest.mark.parametrize("package", SOURCE_ROOTS)
def test_each_package_says_that_it_is_typed(package: str) -> None:
    """Type checkers take all of a package without the file for `Any`. Source: PEP 561."""
    assert (SOURCE_ROOTS[package] / package / "py.typed").is_file()
