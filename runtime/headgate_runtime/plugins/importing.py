"""Imports a class that others wrote. Whatever its module raises says why it cannot be had."""

import importlib
import traceback
from pathlib import Path


class NotImportedError(Exception):
    """The class cannot be imported. The message says why; the cause is what its module raised."""


def import_class(target: str, *, quoted: bool = True) -> object:
    """What `target` names, ``module:Class``.

    Args:
        quoted: whether the words of an error of the module's own may be told. They may have secrets
            in them.

    Raises:
        NotImportedError: there is none, or its module raised something.
    """
    module, _, attribute = target.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise NotImportedError(str(error)) from error
    except (Exception, SystemExit) as error:
        raise NotImportedError(_told(error, quoted=quoted)) from error
    return found


def _told(error: BaseException, *, quoted: bool) -> str:
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{kind}: {error}"  # its text has the place
    text = f"{kind}: {error}" if quoted and str(error) else kind
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text} ({Path(last.filename).name}, line {last.lineno})"
