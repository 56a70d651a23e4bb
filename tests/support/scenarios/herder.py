"""Commands of the scenarios in ``specs/herder``: workers, calls, and the herders' effects.

    worker NAME [exactly-once | preparing] [java] [session-keys]
                                        a worker comes up; shows nothing until time passes. `java`:
                                        it only has a protocol of Java's; `delay=MS`: the longest
                                        time for which it lets lost work wait
    settle                              time passes until every worker calls itself settled
    advance MS | run                    time passes; without time, whatever can happen does
    call WORKER OPERATION ...           what a user asks of a worker; see `_call`
    ask WORKER OPERATION ...            the same, and shows the answer
    hold EFFECT [WORKER] [key=KEY]      effects of this kind (appends: of this record) are not
                                        performed until `release`
    silent TASK                         the body of this task reports nothing by itself
    report WORKER TASK REPORT           a report of the body of the task's present run
    used WORKER TASK TOPIC ...          the task reports that it has used these topics
    progress WORKER TASK RECORDS        the task reports this number of records
    ends WORKER TASK OUTCOME [REASON]   the task's run ends of its own accord and is released
    kill / freeze / thaw / cut / mend NAME; lose-coordinator NAME; shutdown NAME
    lag NAME                            the worker reads new statuses only when it asks for the end
    secret KEY VALUE                    what ``${vault:KEY}`` stands for from now on
    steal-log / forget-members          the log gets another writer; the coordinator forgets
    append                              records that come from elsewhere: ``key value`` lines
    view NAME | running | statuses | settled WORKER CONNECTOR
                                        shows this state
    look WORKER CONNECTOR               the first look of a wait, as a call to the worker

The output is the trace of all effects since the block before. It leaves out the effects that appear
in every story: group requests, reads of the log, validation. ``quiet`` after a command leaves the
trace out.
"""

import json
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from support.herder.world import HerderWorld, Worker
from support.scenarios.runner import Block, World

from headgate.herder import messages as m
from headgate.herder.settled import THE_CONNECTOR, is_entry_settled, outdated
from headgate.ids import TargetState, TaskId
from headgate.task.messages import (
    FencingRequested,
    ProducerInitialised,
    TaskEnded,
    TaskOutcome,
    TaskPaused,
    TaskProgress,
    TaskReleased,
    TaskReport,
    TaskRunning,
    TopicsUsed,
)
from headgate.topics.status import StatusView, decode_status, fold_statuses

_REPORTS: dict[str, TaskReport] = {
    "fencing-requested": FencingRequested(),
    "producer-initialised": ProducerInitialised(),
    "running": TaskRunning(),
    "paused": TaskPaused(),
    "released": TaskReleased(),
    "stopped": TaskEnded(TaskOutcome.STOPPED),
}


class HerderScenario(World):
    def __init__(self) -> None:
        self.world = HerderWorld()

    def run(self, block: Block) -> str:
        """Show what the herders did about a command, and then the command's own output."""
        self.world.trace.clear()
        own = super().run(block)
        shown = [] if "quiet" in block.words else self.world.trace
        lines = [*shown, *([own] if own else [])]
        return "\n".join(lines) or "nothing"

    # -- workers --

    def do_worker(self, block: Block) -> str:
        settings: dict[str, object] = {}
        if "exactly-once" in block.words:
            settings["exactly_once_support"] = "enabled"
        if "preparing" in block.words:
            settings["exactly_once_support"] = "preparing"
        if "java" in block.words:
            settings["protocols"] = ("sessioned",)
        if "session-keys" in block.words:
            settings["session_keys"] = True
        if "delay" in block.options:
            settings["rebalance_delay_ms_max"] = int(block.options["delay"])
        for name in block.words:
            if name not in ("exactly-once", "preparing", "java", "session-keys", "quiet"):
                self.world.add(name, **settings)
        return ""

    def do_kill(self, block: Block) -> str:
        self.world.kill(block.words[0])
        return ""

    def do_freeze(self, block: Block) -> str:
        self.world.workers[block.words[0]].frozen = True
        return ""

    def do_thaw(self, block: Block) -> str:
        self.world.workers[block.words[0]].frozen = False
        self.world.run()
        return ""

    def do_lag(self, block: Block) -> str:
        self.world.workers[block.words[0]].statuses_lag = True
        return ""

    def do_cut(self, block: Block) -> str:
        self.world.workers[block.words[0]].cut_off = True
        return ""

    def do_mend(self, block: Block) -> str:
        self.world.workers[block.words[0]].cut_off = False
        self.world.run()
        return ""

    def do_lose_coordinator(self, block: Block) -> str:
        self.world.lose_coordinator(block.words[0])
        self.world.run()
        return ""

    def do_shutdown(self, block: Block) -> str:
        self.world.give(block.words[0], m.Shutdown())
        self.world.run()
        done = self.world.workers[block.words[0]].herder.done
        return f"{block.words[0]} is {'done' if done else 'not done'}"

    def do_steal_log(self, _block: Block) -> str:
        """Let another writer claim the config log."""
        self.world.claimed_by = "somebody else"
        return ""

    def do_forget_members(self, _block: Block) -> str:
        """Let the coordinator lose the members of the group."""
        self.world.coordinator.remove_members()
        return ""

    # -- time --

    def do_run(self, _block: Block) -> str:
        self.world.run()
        return ""

    def do_advance(self, block: Block) -> str:
        self.world.advance(int(block.words[0]))
        return ""

    def do_settle(self, _block: Block) -> str:
        self.world.until_settled()
        return ""

    # -- calls --

    def do_call(self, block: Block) -> str:
        worker, operation, *words = block.words
        deadline = block.options.get("within")
        call = _call(operation, [w for w in words if w != "quiet"], block)
        self.world.call(worker, call, int(deadline) if deadline else None)
        self.world.run()
        return ""

    def do_ask(self, block: Block) -> str:
        worker, operation, *words = block.words
        call_id = self.world.call(worker, _call(operation, words, block))
        self.world.run()
        self.world.trace[:] = [line for line in self.world.trace if f" {call_id}:" not in line]
        match self.world.answers[call_id]:
            case [m.Success(value)]:
                return json.dumps(value)
            case [m.Failure(kind, message)]:
                return f"{kind.value}: {message}"
            case _:
                return "no answer yet"

    def do_secret(self, block: Block) -> str:
        key, value = block.words
        self.world.secrets[key] = value
        return ""

    def do_request_task_reconfiguration(self, block: Block) -> str:
        worker, connector = block.words
        run = max(run for name, run in self.world.workers[worker].configs if name == connector)
        self.world.give(worker, m.TaskReconfigurationRequested(connector, run))
        self.world.run()
        return ""

    # -- effects --

    def do_hold(self, block: Block) -> str:
        kind, *worker = [word for word in block.words if word != "quiet"]
        key = block.options.get("key")

        def hold(of: Worker, effect: m.Effect) -> bool:
            if key is not None and key not in dict(getattr(effect, "records", ())):
                return False
            return type(effect).__name__ == kind and (not worker or of.name in worker)

        self.world.holds.append(hold)
        return ""

    def do_release(self, _block: Block) -> str:
        self.world.release()
        self.world.run()
        return ""

    def do_append(self, block: Block) -> str:
        for line in block.input:
            key, _, value = line.partition(" ")
            self.world.log.append((key, value.encode() if value else None))
        if "unread" not in block.words:
            self.world.run()
        return ""

    # -- tasks --

    def do_silent(self, block: Block) -> str:
        self.world.silent_bodies.update(TaskId.parse(word) for word in block.words)
        return ""

    def do_speaking(self, block: Block) -> str:
        self.world.silent_bodies.difference_update(TaskId.parse(word) for word in block.words)
        return ""

    def do_report(self, block: Block) -> str:
        worker, task, *reports = block.words
        run = self.world.run_of(worker, TaskId.parse(task))
        for report in reports:
            self.world.report(worker, run, _REPORTS[report])
            if report == "released":
                self.world.workers[worker].runs.pop(run)
        self.world.run()
        return ""

    def do_used(self, block: Block) -> str:
        worker, task, *topics = block.words
        run = self.world.run_of(worker, TaskId.parse(task))
        self.world.report(worker, run, TopicsUsed(tuple(topics)))
        self.world.run()
        return ""

    def do_progress(self, block: Block) -> str:
        worker, task, records = block.words
        run = self.world.run_of(worker, TaskId.parse(task))
        self.world.report(worker, run, TaskProgress(int(records), 0, idle=False))
        self.world.run()
        return ""

    def do_ends(self, block: Block) -> str:
        worker, task, outcome, *reason = block.words
        ended = TaskEnded(TaskOutcome(outcome), " ".join(reason) or "no reason given")
        self.world.end_task(worker, TaskId.parse(task), ended)
        self.world.run()
        return ""

    # -- what there is to see --

    def do_running(self, _block: Block) -> Iterable[str]:
        return [f"{name}: {' '.join(tasks)}" for name, tasks in self.world.running().items()]

    def do_view(self, block: Block) -> Iterable[str]:
        view = self.world.workers[block.words[0]].herder.view()
        yield f"settled={view.settled} pending={list(view.pending)}"
        for name, state in view.connectors.items():
            yield f"{name} {state.value}"
        for task in view.tasks:
            detail = f" ({task.detail})" if task.detail else ""
            yield f"{task.task} {task.state.value} attempts={task.attempts}{detail}"

    def do_statuses(self, _block: Block) -> Iterable[str]:
        latest = dict(self.world.statuses)
        for key in sorted(latest):
            value = latest[key]
            shown = "deleted" if value is None else json.loads(value)["state"]
            yield f"{key.removeprefix('status-')} {shown}"

    def do_settled(self, block: Block) -> str:
        """Show whether a worker takes a connector's statuses as answers to the latest request of a
        user."""
        worker, name = block.words
        entry = self.world.workers[worker].herder.state.entries[name]
        read = [decode_status(key, value) for key, value in self.world.statuses]
        statuses = fold_statuses(StatusView(), read)
        old = [
            "connector" if number == THE_CONNECTOR else f"task {number}"
            for number in outdated(entry, statuses, name)
        ]
        word = "settled" if is_entry_settled(entry, statuses, name) else "not settled"
        return f"{word}; outdated: {', '.join(old) or 'nothing'}"

    def do_look(self, block: Block) -> str:
        worker, name = block.words
        call_id = self.world.call(worker, m.ShowConnector(name, to_end=True))
        self.world.run()
        self.world.trace[:] = [line for line in self.world.trace if f" {call_id}:" not in line]
        (answer,) = self.world.answers[call_id]
        assert isinstance(answer, m.Success)
        found: Any = answer.value
        row = found["row"]
        tasks = [f"task {each['id']} {each['state']}" for each in row["status"]["tasks"]]
        states = [f"connector {row['status']['connector']['state']}", *tasks]
        return f"{', '.join(states)}; {'settled' if row['settled'] else 'not settled'}"


def _call(operation: str, words: list[str], block: Block) -> m.Call:
    """Return the call of an operation.

    The operations are ``create NAME [state]``, ``put NAME``, ``delete``, ``pause``, ``resume``,
    ``stop``, ``restart NAME [include-tasks] [only-failed]``, ``restart-task NAME-N``, ``fence
    NAME``, ``task-configs NAME``, ``patch NAME``, ``list [status] [info]``, ``info``, ``tasks``,
    ``status``, ``topics``, ``reset-topics NAME``, ``task-status NAME-N``, ``offsets NAME``,
    ``alter-offsets NAME``, ``reset-offsets NAME``, ``logger NAME LEVEL``.

    A config is in the input, one ``key=value`` a line. In a patch, ``key`` alone removes the key.
    The input of task configs has a line of ``key=value`` words for each. The input of offsets has a
    line with partition and offset, as JSON, for each.
    """
    if operation == "list":
        return m.ListConnectors(tuple(words))
    name = words[0]
    if operation in _READS:
        return _READS[operation](name)
    match operation:
        case "create":
            state = TargetState(words[1]) if len(words) > 1 else None
            return m.CreateConnector(name, _config(block.input), state)
        case "put":
            return m.PutConnectorConfig(name, _config(block.input))
        case "delete":
            return m.DeleteConnector(name)
        case "pause":
            return m.SetTargetState(name, TargetState.PAUSED)
        case "resume":
            return m.SetTargetState(name, TargetState.STARTED)
        case "stop":
            return m.SetTargetState(name, TargetState.STOPPED)
        case "restart":
            return m.RestartConnector(
                name, include_tasks="include-tasks" in words, only_failed="only-failed" in words
            )
        case "restart-task":
            return m.RestartTask(TaskId.parse(name))
        case "fence":
            return m.FenceConnector(name)
        case "task-configs":
            configs = tuple(_config(shlex.split(line)) for line in block.input)
            return m.PutTaskConfigs(name, configs)
        case "patch":
            given = (line.partition("=") for line in block.input)
            changes = {key: value if equals else None for key, equals, value in given}
            return m.PatchConnectorConfig(name, changes)
        case "task-status":
            return m.DescribeTaskStatus(TaskId.parse(name))
        case "alter-offsets":
            return m.AlterOffsets(name, tuple(_offset_change(line) for line in block.input))
        case "logger":
            return m.SetLoggerLevel(name, words[1])
        case _:
            raise ValueError(f"{block.where()}: no operation {operation!r}")


_READS: dict[str, Callable[[str], m.Call]] = {
    "info": m.DescribeConnector,
    "tasks": m.DescribeTasks,
    "status": m.DescribeStatus,
    "topics": m.DescribeTopics,
    "reset-topics": m.ResetTopics,
    "offsets": m.ReadOffsets,
    "reset-offsets": m.ResetOffsets,
}


def _offset_change(line: str) -> m.OffsetChange:
    partition, offset = json.loads(f"[{line}]")
    return partition, offset


def _config(lines: Iterable[str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines)


WORLDS = {"herder": HerderScenario}
