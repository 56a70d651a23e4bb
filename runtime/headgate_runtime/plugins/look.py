"""Finds out whether ``module:Class`` is a plugin, by reading its source before any of it is
imported.

Every client of the REST API may name any class. Importing a module runs it. So a module is imported
only if it is seen beforehand that the class is of the right kind:

- The standard library has no plugins: its modules are refused by name.
- If `headgate.plugin.modules` names modules, they and their submodules are imported without a look,
  and no others are.
- Otherwise the source has to show that the class derives from one of headgate's: by its bases,
  followed through the imports and assignments of the modules that define them.
- A module that is imported already is inspected itself: that runs no code.
"""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

from headgate.connector.nearest import nearest

SETTING: Final = "headgate.plugin.modules"
OWN: Final = "headgate"
"""The package with the base classes. Importing it has no side effects."""

_named: tuple[str, ...] = ()


def allow_modules(names: Sequence[str]) -> None:
    """Set `headgate.plugin.modules` for this process. Empty: it names no modules."""
    global _named
    _named = tuple(names)


def objection(target: str, base: type) -> str | None:
    """Return why ``module:Class`` is not imported as a subclass of `base`. None: it may be."""
    module, _, name = target.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        return f"{target} is no module:Class"
    if module.partition(".")[0] in sys.stdlib_module_names:
        return f"{module} is a module of Python's standard library, which has no plugins"
    if _named:
        if any(module == named or module.startswith(f"{named}.") for named in _named):
            return None
        return f"{module} is none of the modules of {SETTING}, {', '.join(_named)}"
    look = _Look(base)
    if look.shows(module, name):
        return None
    if _spec(module) is None and module not in sys.modules:
        return f"there is no module {module} on the path"
    if fault := _syntax_fault(module):
        return f"{module} is no Python: {fault}"
    shown = [each for each in _names(module) if _Look(base).shows(module, each)]
    near = nearest(name, shown)
    meant = f" Did you mean {module}:{near}?" if near else ""
    return (
        f"{module} is not imported: its source does not show that {name} is a subclass of "
        f"headgate's {base.__name__}.{meant} If it is one, name the module in {SETTING} "
        "of the worker's file"
    )


def _is_under_way(module: ModuleType) -> bool:
    """Return whether another thread is importing the module, which has only some of its names
    yet."""
    return bool(getattr(module.__spec__, "_initializing", False))


class _Look:
    def __init__(self, base: type) -> None:
        self._base = base
        self._seen: set[tuple[str, str]] = set()

    def shows(self, module: str, name: str) -> bool:
        """Return whether `name` of `module` is a subclass, as far as the source shows."""
        if (module, name) in self._seen:
            return False
        self._seen.add((module, name))
        loaded = sys.modules.get(module)
        if loaded is None and module.partition(".")[0] == OWN and _spec(module) is not None:
            loaded = importlib.import_module(module)
        if loaded is not None:
            own = module.partition(".")[0] == OWN  # resolves some of its names lazily
            found = (
                getattr(loaded, name, None) if own else inspect.getattr_static(loaded, name, None)
            )
            if found is not None or own or not _is_under_way(loaded):
                return inspect.isclass(found) and issubclass(found, self._base)
        tree, is_package = _tree(module)
        package = module if is_package else module.rpartition(".")[0]
        return any(self._binds(module, package, name, statement) for statement in _statements(tree))

    def _binds(self, module: str, package: str, name: str, statement: ast.stmt) -> bool:
        match statement:
            case ast.ClassDef(name=known, bases=bases) if known == name:
                return any(self._is_shown(module, package, each) for each in bases)
            case ast.Assign(targets=targets, value=value):
                if any(isinstance(each, ast.Name) and each.id == name for each in targets):
                    return self._is_shown(module, package, value)
            case ast.ImportFrom():
                origin = _origin(statement, package)
                for alias in statement.names:
                    if alias.name == "*" or (alias.asname or alias.name) == name:
                        found = name if alias.name == "*" else alias.name
                        if self.shows(origin, found):
                            return True
        return False

    def _is_shown(self, module: str, package: str, value: ast.expr) -> bool:
        """Return whether an expression in the module is a subclass."""
        if isinstance(value, ast.Subscript):  # Base[T]
            value = value.value
        if isinstance(value, ast.Name):
            return self.shows(module, value.id)
        dotted = _dotted(value)
        if not dotted:
            return False
        *path, name = dotted
        return any(
            self.shows(".".join((found, *path[1:])), name)
            for found in _modules_called(path[0], _tree(module)[0], package)
        )


def _modules_called(name: str, tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the modules that `name` may mean, by the imports of one module."""
    for statement in _statements(tree):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.asname == name:
                    yield alias.name
                elif alias.asname is None and alias.name.partition(".")[0] == name:
                    yield name
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    yield f"{_origin(statement, package)}.{alias.name}"


def _origin(statement: ast.ImportFrom, package: str) -> str:
    """Return the module from which the statement imports."""
    above = package.split(".")
    start = above[: len(above) - statement.level + 1] if statement.level else []
    return ".".join((*start, *([statement.module] if statement.module else [])))


def _dotted(value: ast.expr) -> list[str]:
    """Return ``["a", "b", "C"]`` for ``a.b.C``, and an empty list for any other expression."""
    names: list[str] = []
    while isinstance(value, ast.Attribute):
        names.insert(0, value.attr)
        value = value.value
    return [value.id, *names] if isinstance(value, ast.Name) else []


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of the module, including those in ``if`` and ``try``, but not in classes
    and functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if isinstance(child, ast.stmt):
                yield child
            if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                waiting.append(child)


def _tree(module: str) -> tuple[ast.Module, bool]:
    """Return the module's source, and whether it is a package. The source is empty if it cannot be
    read."""
    spec = _spec(module)
    is_package = spec is not None and spec.submodule_search_locations is not None
    try:
        return _parsed(module, spec), is_package
    except (OSError, ImportError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[]), is_package


def _parsed(module: str, spec: ModuleSpec | None) -> ast.Module:
    if spec is None:
        source = ""
    elif spec.origin is None or not spec.origin.endswith(".py"):
        source = getattr(spec.loader, "get_source", lambda _: None)(module) or ""
    else:
        source = importlib.util.decode_source(Path(spec.origin).read_bytes())
    return ast.parse(source)


def _syntax_fault(module: str) -> str | None:
    """Return what keeps Python from parsing the module, and where."""
    spec = _spec(module)
    try:
        _parsed(module, spec)
    except SyntaxError as error:
        file = Path(spec.origin).name if spec is not None and spec.origin else module
        return f"{error.msg} ({file}, line {error.lineno})"
    except (OSError, ImportError, ValueError, RecursionError, MemoryError):
        pass
    return None


def _names(module: str) -> list[str]:
    """Return the names of the classes that the module defines."""
    tree = _tree(module)[0]
    return [each.name for each in _statements(tree) if isinstance(each, ast.ClassDef)]


def _spec(module: str) -> ModuleSpec | None:
    """Return where the module is. `importlib.util.find_spec` would import its parent packages."""
    spec, path, name = None, None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = _spec_in(name, path)
        if spec is None:
            return None
        path = _folders(spec)
        if path is None and name != module:
            return None
    return spec


def _folders(spec: ModuleSpec) -> Sequence[str] | None:
    """Return the folders with a package's modules. A package without ``__init__.py`` has a path
    that asks its parent packages, which are not imported. Its present content is used instead."""
    known = spec.submodule_search_locations
    return getattr(known, "_path", known)


def _namespace(name: str, path: Sequence[str]) -> ModuleSpec | None:
    """Return the spec of a package without ``__init__.py`` below `path`."""
    last = name.rpartition(".")[2]
    folders = [str(Path(folder, last)) for folder in path if Path(folder, last).is_dir()]
    if not folders:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = folders
    return spec


def _spec_in(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except KeyError:  # a package without __init__.py, whose parent is not imported
            spec = _namespace(name, path or ())
        except (ImportError, ValueError, OSError):
            continue
        if spec is not None:
            return spec
    return None
