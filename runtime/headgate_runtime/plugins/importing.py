"""Imports a class that others wrote. Any error of its module becomes the reason why it is not
usable."""

import importlib
import traceback
from pathlib import Path


class NotImportedError(Exception):
    """The class cannot be imported. The message says why. The cause is the module's error."""


def import_class(target: str, *, quoted: bool = True) -> object:
    """Return the object that `target`, a ``module:Class``, names.

    Args:
        quoted: whether an error of the module may be quoted. It may have secrets in it.

    Raises:
        NotImportedError: there is none, or its module raised an error.
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
        return f"{kind}: {error}"  # the error's text has the place
    text = f"{kind}: {error}" if quoted and str(error) else kind
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text} ({Path(last.filename).name}, line {last.lineno})"
