"""The source of a class that a request names is inspected before any code of its module runs."""

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headgate.connector.api import Connector
from headgate_runtime.plugins import look
from headgate_runtime.plugins.find import PluginError, find_connector
from headgate_runtime.plugins.look import allow_modules, objection

PLAIN = """
from headgate.connector.api import SourceConnector

class Src(SourceConnector):
    pass
"""

CLASS = """from headgate.connector import SourceConnector
class Src(SourceConnector):
    pass
"""
SHOWN = {
    "a class": (PLAIN, "m:Src"),
    "a public name": (
        "from headgate.connector import SourceConnector\nclass Src(SourceConnector): pass",
        "m:Src",
    ),
    "a module's name": (
        "import headgate.connector.api as api\nclass Src(api.SinkConnector): pass",
        "m:Src",
    ),
    "the whole path": (
        "import headgate.connector.api\nclass Src(headgate.connector.api.SourceConnector): pass",
        "m:Src",
    ),
    "a module from its package": (
        "from headgate.connector import api\nclass Src(api.SourceConnector): pass",
        "m:Src",
    ),
    "a base in the same module": (f"{PLAIN}\nclass More(Src): pass", "m:More"),
    "another name": (f"{PLAIN}\nOther = Src", "m:Other"),
    "a condition": (
        "try:\n    from headgate.connector.api import SourceConnector as S\n"
        "except ImportError:\n    S = object\nif True:\n    class Src(S): pass",
        "m:Src",
    ),
    "one of several bases": (f"{PLAIN}\nclass Mix(dict, Src): pass", "m:Mix"),
    "a base with a parameter": (f"{PLAIN}\nclass P(Src[int]): pass", "m:P"),
    "a module that is not annotated in UTF-8": (
        f"# -*- coding: latin-1 -*-\n{PLAIN}",
        "m:Src",
    ),
}

NOT_SHOWN = {
    "no such class": (PLAIN, "m:Sink"),
    "a class of another kind": ("class Src: pass", "m:Src"),
    "a function": ("def Src(): pass", "m:Src"),
    "inside of a function": (f"def f():\n    {PLAIN.strip().splitlines()[0]}", "m:Src"),
    "a call": (f"{PLAIN}\nMade = type('Made', (Src,), {{}})", "m:Made"),
    "itself": ("class Src(Src): pass", "m:Src"),
    "a circle": ("A = B\nB = A", "m:A"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path. A module there that is imported fails the test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    mine = [name for name in set(sys.modules) - before if name.partition(".")[0] in ("m", "pack")]
    for name in mine:
        del sys.modules[name]
    assert mine == []


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="latin-1")


@pytest.mark.parametrize("case", SHOWN)
def test_a_class_that_the_source_shows_may_be_imported(place: Path, case: str) -> None:
    text, target = SHOWN[case]
    write(place, "m.py", text)
    assert objection(target, Connector) is None


@pytest.mark.parametrize("case", NOT_SHOWN)
def test_what_the_source_does_not_show_is_not_imported(place: Path, case: str) -> None:
    text, target = NOT_SHOWN[case]
    write(place, "m.py", f"{text}\nraise SystemExit('it ran')\n")
    said = objection(target, Connector)
    assert said is not None
    assert "its source does not show that" in said
    assert "name the module in headgate.plugin.modules" in said
    with pytest.raises(PluginError, match="cannot be used: m is not imported"):
        find_connector(target)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("class (", "invalid syntax (m.py, line 4)"),
        ("x = " + "(" * 5_000, "too many nested parentheses (m.py, line 4)"),
        ("x = = 1", "invalid syntax (m.py, line 4)"),
    ],
    ids=["no class", "nested too deeply", "twice"],
)
def test_what_is_no_python_is_told_with_its_place(place: Path, line: str, fault: str) -> None:
    write(place, "m.py", f"{CLASS}{line}\nraise SystemExit('it ran')\n")
    assert objection("m:Src", Connector) == f"m is no Python: {fault}"


def test_a_misspelt_class_is_told_with_the_one_that_is_meant(place: Path) -> None:
    """The suggestion is a name that the source shows to be a class of the right kind."""
    write(place, "m.py", f"{PLAIN}\nclass Helper: pass\n")
    assert "Did you mean m:Src? If it is" in (objection("m:Srcs", Connector) or "")
    assert "Did you mean" not in (objection("m:Helpers", Connector) or "Did you mean")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x = nope", "NameError: name 'nope' is not defined (own_broken.py, line 4)"),
        ("raise SystemExit('no licence')", "SystemExit: no licence (own_broken.py, line 4)"),
        ("assert False", "AssertionError (own_broken.py, line 4)"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("Src.VERSION = 1.5", "own_broken:Src has the VERSION 1.5, expected a text, in quotes"),
    ],
)
def test_whatever_a_module_raises_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    write(tmp_path, "own_broken.py", CLASS + line)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError) as refused:
        find_connector("own_broken:Src")
    sys.modules.pop("own_broken", None)
    assert why in str(refused.value)


def test_bases_are_followed_through_packages(place: Path) -> None:
    """No package above the module is imported for it."""
    write(place, "pack/__init__.py", "raise SystemExit('it ran')\nfrom .deep import Src\n")
    write(place, "pack/deep/__init__.py", "from ..base import Own as Src\n")
    write(place, "pack/base.py", f"{PLAIN}\nclass Own(Src): pass\n")
    write(place, "pack/star.py", "from pack.base import *\n")
    for target in ("pack:Src", "pack.deep:Src", "pack.base:Own", "pack.star:Own"):
        assert objection(target, Connector) is None
    assert objection("pack.deep:Own", Connector) is not None
    assert objection("pack.base.more:Own", Connector) == (
        "there is no module pack.base.more on the path"
    )


@pytest.mark.parametrize("target", ["this:s", "antigravity:x", "http.server:main", "os.path:join"])
def test_the_standard_library_has_no_plugins(target: str) -> None:
    module = target.partition(":")[0]
    said = objection(target, Connector)
    assert said == f"{module} is a module of Python's standard library, which has no plugins"


@pytest.mark.parametrize("target", ["uvicorn:Config", "pytest_asyncio.nothing:X", "httpx:Client"])
def test_what_others_installed_is_not_imported_either(target: str) -> None:
    assert objection(target, Connector) is not None


@pytest.mark.parametrize("target", [":", "m:", ":x", "m x:y", "../m:x", "m..n:x", "m:a.b", "m:x:y"])
def test_what_is_no_module_and_class_is_told(target: str) -> None:
    assert objection(target, Connector) == f"{target} is no module:Class"


def test_in_a_process_of_its_own_nothing_is_imported(tmp_path: Path) -> None:
    """Other tests may have imported the module in this process."""
    write(tmp_path, "effects.py", "print('it ran')\nclass C: pass\n")
    script = (
        "import sys\n"
        "from headgate_runtime.plugins.find import PluginError, find_connector\n"
        "for name in ('this:s', 'antigravity:x', 'effects:C', 'uvicorn:Config', 'wsgiref.x:y'):\n"
        "    try:\n"
        "        find_connector(name)\n"
        "    except PluginError:\n"
        "        pass\n"
        "    else:\n"
        "        print(name, 'was found')\n"
        "print([m for m in ('this', 'effects', 'uvicorn', 'wsgiref') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_modules_that_a_setting_names_need_no_look_and_others_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "_named", ())
    write(place, "m.py", "Src = None\n")
    allow_modules(["pack", "m.inner"])
    assert objection("pack:Src", Connector) is None
    assert objection("pack.base:Src", Connector) is None
    assert objection("m.inner.more:Src", Connector) is None
    for target in ("package:Src", "m:Src", "m.innermost:Src"):
        module = target.partition(":")[0]
        assert objection(target, Connector) == (
            f"{module} is none of the modules of headgate.plugin.modules, pack, m.inner"
        )
    assert "standard library" in (objection("this:s", Connector) or "")


def test_a_task_runs_what_its_worker_has_found(tmp_path: Path) -> None:
    """The task's process knows no settings of plugins, and its worker has inspected the config
    before."""
    write(tmp_path, "made.py", f"{PLAIN}\nMade = type('Made', (Src,), {{}})\n")
    script = (
        "from headgate_runtime.plugins.find import find_connector\n"
        "print(find_connector('made:Made', looked_at=True).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Made\n"


def test_a_module_that_is_there_is_asked_itself() -> None:
    class Here(Connector):
        pass

    module = sys.modules[__name__]
    module.Here = Here  # type: ignore[attr-defined]
    try:
        assert objection(f"{__name__}:Here", Connector) is None
        assert objection(f"{__name__}:write", Connector) is not None
    finally:
        del module.Here  # type: ignore[attr-defined]


def test_packages_without_init_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own finder asks the packages above one, which are not imported."""
    inner = tmp_path / "outer_space" / "inner"
    inner.mkdir(parents=True)
    (inner / "m.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert objection("outer_space.inner.m:Src", Connector) is None
    assert "outer_space" not in sys.modules


def test_a_module_that_another_thread_imports_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once one of two connectors of a module that started together was FAILED at random."""
    monkeypatch.syspath_prepend(tmp_path)
    # The import is held before the class is there.
    (tmp_path / "under_way.py").write_text(f"import held\nheld.up()\n{PLAIN}")
    held = ModuleType("held")
    begun, go_on = threading.Event(), threading.Event()

    def up() -> None:
        begun.set()
        assert go_on.wait(20)

    held.up = up  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "held", held)
    thread = threading.Thread(target=importlib.import_module, args=("under_way",), daemon=True)
    thread.start()
    assert begun.wait(20)
    try:
        assert objection("under_way:Src", Connector) is None
        assert objection("under_way:Sink", Connector) is not None
    finally:
        go_on.set()
        thread.join(20)
        monkeypatch.delitem(sys.modules, "under_way")
