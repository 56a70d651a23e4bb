"""Exceptions that do not keep a Kafka client alive.

The traceback of an exception holds the local variables of each frame that it passed. So a client of
librdkafka lives as long as an exception that came from it. While it lives, its threads go on. A
client that was told to abort a transaction does so once its brokers are back. It then asks for a
new epoch, which ends the transaction of the producer that has replaced it. Seen with librdkafka
2.16.0 and brokers of Kafka 4.3.1.
"""

import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def letting_go(call: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Decorate `call` so that its exceptions hold no local variables of the functions it called."""

    @wraps(call)
    def made(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        handled = sys.exception()
        try:
            return call(*given, **named)
        except BaseException as error:
            let_go(error, handled)
            raise

    return made


def let_go(error: BaseException, handled: BaseException | None = None) -> None:
    """Drop the local variables of all finished frames in the traceback of `error`, and of its
    causes and contexts.

    Args:
        handled: the exception that the caller was handling already. It is left alone.
    """
    todo: list[BaseException | None] = [error]
    seen = {id(handled)}
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        todo += [one.__cause__, one.__context__]
