"""SparkSource: rows of anything that Spark can read as records, exactly once.

Each task is a process of the worker with its own session at the Spark Connect server. Spark reads
and sorts. Rows come as Arrow, and go through the task's one producer with their source offsets. So
fencing and offsets are those of any other source.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from headgate.connector.api import (
    DataError,
    ExactlyOnceSupport,
    RetriableError,
    SourceConnector,
    SourceItem,
    SourceTask,
)
from headgate.connector.config import ConfigDef, ConfigError
from headgate_spark.arrow_rows import prepare
from headgate_spark.sessions import (
    Sessions,
    executors_lost,
    first_line,
    session_is_over,
    with_cause,
)
from headgate_spark.source_config import (
    BULK,
    CONFIG,
    FILES,
    INCREMENTING,
    OPTION,
    TASK,
    TASKS,
    Settings,
    absolute,
)
from headgate_spark.source_files import FilesReader, unread
from headgate_spark.source_shares import (
    BulkShare,
    IncrementingShare,
    Share,
    SourceChangedError,
    check_shares,
)

_REMOTE: Final = "spark.remote"


class SparkError(Exception):
    """Spark cannot read what the settings name. The message is Spark's first line."""


class SparkSourceTask(SourceTask):
    IN_WORKER_PROCESS: ClassVar[bool] = True

    def start(self, config: Mapping[str, str]) -> None:
        self._settings = Settings.of(config)
        remote = self.context.worker_settings.get(_REMOTE)
        if not remote:
            raise ConfigError(
                f"the worker setting {_REMOTE} is missing: SparkSource reads by the Spark Connect "
                "server that it names (sc://host:port)"
            )
        self._sessions = Sessions.of_task(remote, self.context.worker_settings)
        self._prepared: Any = None
        self._unread: list[str] = []
        """Files that Spark leaves out of rows that are read in shares."""
        self._readers: list[Share | FilesReader] = self._made()
        self._turn = 0

    def _made(self) -> list[Share | FilesReader]:
        settings, context = self._settings, self.context
        if settings.mode == FILES:
            return [FilesReader(settings, context)]
        check_shares(context, settings)
        self._unread = unread(settings)
        for line in self._unread:
            context.log(f"set aside {line}")
        kind = BulkShare if settings.mode == BULK else IncrementingShare
        return [kind(settings, context, share) for share in settings.my_shares]

    def poll(self) -> Sequence[SourceItem] | None:
        for _ in self._readers:
            reader = self._readers[self._turn % len(self._readers)]
            if items := self._read(reader):
                return items
            self._turn += 1  # a share is read to its end before the next
        if self._unread:
            self.context.quarantine(self._unread)
        self.context.wait(min(self._settings.interval_s, 1.0))
        return None

    def _read(self, reader: Share | FilesReader) -> list[SourceItem]:
        session: Any = None
        try:
            session = self._sessions.get()
            if session is not self._prepared:
                prepare(session, self._settings.rows)
                self._prepared = session
            return reader.next_batch(session)
        except (DataError, SourceChangedError, ConfigError, RetriableError):
            raise
        except Exception as error:
            reader.rewind()
            if session is None or session_is_over(error):
                self._sessions.drop(session)
                why = self._sessions.why(error)
                raise RetriableError(f"Spark is out of reach: {why}") from error
            if executors_lost(error):
                raise RetriableError(f"Spark has lost executors: {first_line(error)}") from error
            raise SparkError(with_cause(error)) from error

    def stop(self) -> None:
        sessions: Sessions | None = getattr(self, "_sessions", None)
        if sessions is not None:
            sessions.close()


class SparkSource(SourceConnector):
    """Rows of anything that Spark can read: files, tables, databases by JDBC."""

    VERSION: ClassVar[str] = "0.1.0"
    TASK = SparkSourceTask
    REQUIRES_RUNNER: ClassVar[str | None] = "spark"
    PASSED_ON: ClassVar[tuple[str, ...]] = (OPTION,)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        return ExactlyOnceSupport.SUPPORTED

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """Return errors that one key alone does not show."""
        mode, column = config.get("mode", ""), config.get("incrementing.column", "").strip()
        if mode == INCREMENTING and not column:
            return {"incrementing.column": ["is empty, which mode = incrementing needs"]}
        if mode in (BULK, FILES) and column:
            return {"incrementing.column": [f"is {column}, which needs mode = incrementing"]}
        if mode == FILES and not config.get("path", "").strip():
            return {"path": ["is empty, which mode = files needs: the folder to look into"]}
        if mode == FILES and config.get("format", "").strip().lower() == "jdbc":
            return {"mode": ["is files, but jdbc has none: use incrementing or bulk"]}
        return {}

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        settings = Settings.of(self._config)
        tasks = tasks_max if settings.mode == FILES else min(tasks_max, settings.shares)
        # Tasks may run in a process with another working directory.
        config = {**self._config, "path": absolute(settings.path), TASKS: str(tasks)}
        return [{**config, TASK: str(number)} for number in range(tasks)]
