"""`headgate simulate`: what it prints, and how it refuses a study that cannot be run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.simulation import checks
from headgate_runtime.command.parser import app
from headgate_runtime.command.study_file import StudyFileError, parse_study

RUN = CliRunner()
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "simulation"
STUDY = str(EXAMPLES / "crash_and_back.toml")
CONNECTORS = "[connectors.orders]\ntasks = 9\n"


def event(do: str, at: str = "60s") -> str:
    return f'[[events]]\nat = "{at}"\ndo = "{do}"\n'


WRONG = {
    "a key at the top": ('titel = "x"\n' + CONNECTORS, "f:1: titel: unknown; did you mean title?"),
    "a setting": (
        "[cluster]\nsession.timout.ms = 5000\n" + CONNECTORS,
        "f:2: [cluster] session.timout.ms: unknown setting; did you mean session.timeout.ms?",
    ),
    "a quoted setting": (
        '[cluster]\n"session.timout.ms" = 5000\n' + CONNECTORS,
        "f:2: [cluster] session.timout.ms: unknown setting; did you mean session.timeout.ms?",
    ),
    "a time": (
        '[cluster]\nsession.timeout.ms = "5 sec"\n' + CONNECTORS,
        'f:2: [cluster] session.timeout.ms: the text "5 sec", expected a time: "500ms", "60s"',
    ),
    "a time of 0": (
        "[cluster]\nsession.timeout.ms = 0\n" + CONNECTORS,
        "f:2: [cluster] session.timeout.ms: 0, expected more than 0",
    ),
    "a range": (
        "[cluster]\ntask.stop.ms = [5, 1]\n" + CONNECTORS,
        "f:2: [cluster] task.stop.ms: [5, 1], expected the least and the most: [1, 20]",
    ),
    "a heartbeat beyond the session": (
        "[cluster]\nheartbeat.interval.ms = 20000\n" + CONNECTORS,
        "f:2: [cluster] heartbeat.interval.ms: 20000, expected less than session.timeout.ms",
    ),
    "a protocol": (
        '[cluster]\nconnect.protocol = "eagre"\n' + CONNECTORS,
        'f:2: [cluster] connect.protocol: the text "eagre", expected one of eager, compatible, '
        "sessioned, headgate; did you mean eager?",
    ),
    "a number of workers": (
        "[cluster]\nworkers = 0\n" + CONNECTORS,
        "f:2: [cluster] workers: 0, expected a whole number from 1 to 100",
    ),
    "a key of a connector": (
        "[connectors.orders]\ntask = 9\n",
        "f:2: [connectors.orders] task: unknown key; did you mean tasks?",
    ),
    "a connector that is named like a worker": (
        "[connectors.w1]\n",
        "f:1: [connectors.w1]: expected letters, digits, _, . and -, and no worker's name",
    ),
    "no connectors": ("", "f: no connectors: name at least one in a table [connectors.NAME]"),
    "a worker's table": (
        CONNECTORS + "[workers.w7]\n",
        "f:3: [workers.w7]: no worker of this study: it has w1, w2, w3; did you mean w1?",
    ),
    "an event": (
        CONNECTORS + event("crahs w2"),
        'f:5: event 1 do: unknown event "crahs"; did you mean crash?',
    ),
    "another tool's word": (
        CONNECTORS + event("kill w2"),
        'f:5: event 1 do: unknown event "kill"; did you mean crash?',
    ),
    "a worker": (
        CONNECTORS + event("crash w5"),
        "f:5: event 1 do: no worker w5: there are w1, w2, w3 then; did you mean w1?",
    ),
    "a connector": (
        CONNECTORS + event("pause ordres"),
        "f:5: event 1 do: unknown connector ordres; did you mean orders?",
    ),
    "a worker in place of a connector": (
        CONNECTORS + event("pause w2"),
        "f:5: event 1 do: pause w2: w2 is a worker; expected create, delete, pause",
    ),
    "a connector in place of a worker": (
        CONNECTORS + event("crash orders"),
        "f:5: event 1 do: crash orders: orders is a connector; expected crash WORKER [for TIME]",
    ),
    "an event without its time": (
        CONNECTORS + event("freeze w2"),
        "f:5: event 1 do: freeze w2 for how long? expected freeze WORKER for TIME",
    ),
    "an event with a time that it does not have": (
        CONNECTORS + event("pause orders for 5s"),
        'f:5: event 1 do: "for" means nothing here: expected create, delete, pause',
    ),
    "too many words": (
        CONNECTORS + event("crash w2 for ever"),
        'f:5: event 1 do: "crash w2 for ever": expected crash WORKER [for TIME]',
    ),
    "an event's key": (
        CONNECTORS + event("crash w2") + 'wihtin = "3s"\n',
        "f:6: event 1 wihtin: unknown key; did you mean within?",
    ),
    "an event without a time": (
        CONNECTORS + '[[events]]\ndo = "crash w2"\n',
        'f:3: event 1 at: missing: at = "60s"',
    ),
    "a time that is a number": (
        CONNECTORS + '[[events]]\nat = 60\ndo = "crash w2"\n',
        'f:4: event 1 at: 60, expected a text: at = "60s"',
    ),
    "a crash of what is down": (
        CONNECTORS + event("crash w2") + event("crash w2", "70s"),
        "f:8: event 2 do: w2 is down then: crash w2 at 60 s",
    ),
    "a crash before it is back": (
        CONNECTORS + event("crash w2 for 30s") + event("crash w2", "70s"),
        "f:8: event 2 do: w2 is down then: it comes back at 90 s",
    ),
    "a start of what is up": (
        CONNECTORS + event("start w2"),
        "f:5: event 1 do: w2 is up already",
    ),
    "a task that is not there": (
        CONNECTORS + event("restart orders-9"),
        "f:5: event 1 do: no task orders-9 then: orders has 9, counted from 0",
    ),
    "a connector that is deleted": (
        CONNECTORS + event("delete orders") + event("pause orders", "70s"),
        'f:8: event 2 do: no connector orders then; "create orders" before makes it',
    ),
    "a time that reaches beyond the next event": (
        CONNECTORS + event("crash w2") + 'within = "20s"\n' + event("crash w3", "70s"),
        'f:6: event 1 within: reaches beyond "crash w3" at 70 s',
    ),
    "an event after the end": (
        'duration = "50s"\n' + CONNECTORS + event("crash w2"),
        "f:5: event 1 at: after the end of the study, which duration sets",
    ),
    "no TOML": ("workers: 3\n", "f: not valid TOML: Expected '='"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_study_is_refused_for(what: str) -> None:
    text, expected = WRONG[what]
    with pytest.raises(StudyFileError) as refused:
        parse_study(text, "f")
    (line,) = str(refused.value).splitlines()
    assert line.startswith(expected)


def test_all_that_is_wrong_is_told_before_the_run_with_code_2(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text("[cluster]\nworker = 3\n" + CONNECTORS + event("crahs w2") + event("stop w8"))
    done = RUN.invoke(app, ["simulate", str(file)])
    assert done.exit_code == 2
    assert not done.stdout
    assert [line.split(": ")[-1] for line in done.stderr.splitlines()] == [
        "unknown setting; did you mean workers?",
        'unknown event "crahs"; did you mean crash?',
        "there are w1, w2, w3 then; did you mean w1?",
    ]


@pytest.mark.parametrize("name", ["none.toml", "."])
def test_a_file_that_cannot_be_read_is_named(name: str) -> None:
    done = RUN.invoke(app, ["simulate", name])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"headgate: {name}: ")
    assert "Traceback" not in done.output


def test_a_trace_of_many_runs_is_refused() -> None:
    done = RUN.invoke(app, ["simulate", STUDY, "--trace", "--runs", "2"])
    assert done.exit_code == 2
    assert "give one of them" in done.stderr


def test_it_prints_a_timeline_and_a_summary() -> None:
    done = RUN.invoke(app, ["simulate", STUDY])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "A crash, and back within the delay"
    assert "     60.000 s* crash w2 for 30s" in lines
    assert lines[-2].split()[:8] == ["60.0", "s", "crash", "w2", "for", "30s", "3", "0"]


def test_the_same_in_json() -> None:
    done = RUN.invoke(app, ["simulate", STUDY, "-o", "json", "--seed", "5"])
    made = json.loads(done.stdout)
    assert (made["seed"], made["settled"]) == (5, True)
    assert made["summary"]["moves"] == 0
    assert [one["text"] for one in made["summary"]["events"]][1:] == ["crash w2 for 30s"]
    rounds = [one for one in made["timeline"] if one["what"] == "Rebalanced"]
    lost = next(one for one in rounds if one["delay_ms"])
    assert lost["waiting_tasks"] == ["orders-1", "orders-4", "orders-7"]
    assert lost["members"][0]["tasks"] == ["orders-0", "orders-3", "orders-6"]


def test_many_runs_have_medians_and_the_seed_of_the_worst() -> None:
    study = str(EXAMPLES / "crash_without_delay.toml")
    done = RUN.invoke(app, ["simulate", study, "--runs", "4", "--seed", "3", "-o", "json"])
    made = json.loads(done.stdout)
    assert made["seeds"] == [3, 4, 5, 6]
    worst = made["measures"]["not_running_ms"]
    values = {one["seed"]: one["not_running_ms"] for one in made["runs"]}
    assert worst["worst"] == max(values.values()) == values[worst["seed"]]
    assert worst["median"] == sorted(values.values())[2]
    again = RUN.invoke(app, ["simulate", study, "--seed", str(worst["seed"]), "-o", "json"])
    assert json.loads(again.stdout)["summary"]["not_running_ms"] == worst["worst"]
    text = RUN.invoke(app, ["simulate", study, "--runs", "4", "--seed", "3"]).stdout
    assert text.splitlines()[1] == "4 runs, seeds 3 to 6"


def test_a_broken_invariant_is_told_as_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise checks.InvariantBroken("1 one owner: both have it")

    monkeypatch.setattr(checks.Checks, "task_started", broken)
    done = RUN.invoke(app, ["simulate", STUDY])
    assert done.exit_code == 1
    assert "Headgate broke a rule of its own, which is a fault: 1 one owner" in done.stderr
