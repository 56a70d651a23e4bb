"""A call into a plugin is not made any more once its caller was told that it was not made."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headgate_rest.plugin_calls import LateError, PluginCalls


class Waiting:
    """Plugins whose threads are all taken."""

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def submit(self, _plugin: str, work: Callable[[], None]) -> None:
        self.works.append(work)


def test_a_thread_that_comes_free_at_once_does_not_begin_the_call() -> None:
    """The thread becomes free before the loop has its next turn."""
    plugins, made = Waiting(), list[str]()
    found: Any = plugins

    async def ask() -> None:
        with pytest.raises(LateError) as late:
            await PluginCalls(found).run("x", lambda: made.append("call"), 10)
        plugins.works[0]()
        assert not late.value.begun

    asyncio.run(ask())
    assert made == []
