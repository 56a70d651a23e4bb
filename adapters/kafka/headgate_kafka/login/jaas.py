"""Parser of Java's ``sasl.jaas.config``, which names a login module and its options.

It is one entry of a JAAS file without the entry's name (KIP-85):
``org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";``
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/                     # skipped
    |"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'
    |(?P<word>[^\s=;"'/]+(?:/(?![/*])[^\s=;"'/]*)*)|(?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class JaasError(ValueError):
    """The text is no JAAS entry. The message shows no part of the text, which has passwords."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    module: str
    """Full name of the login module's class."""
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Parse one entry.

    Raises:
        JaasError: the text is not one entry of the form above.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise JaasError("expected 'LoginModuleClass required key=\"value\" ...;', ended by ;")
    (kind, module), (_, flag), *rest = tokens[:-1]
    if kind != "text" or flag.lower() not in FLAGS:
        raise JaasError(f"expected one of {', '.join(FLAGS)} after the login module's class")
    if ("sign", ";") in rest:
        raise JaasError("expected one entry, found a second one after ;")
    if len(rest) % 3:
        raise JaasError('expected options of the form key="value"; one is incomplete')
    options = {}
    for at in range(0, len(rest), 3):
        (key_kind, key), sign, (value_kind, value) = rest[at : at + 3]
        if key_kind != "text" or sign != ("sign", "=") or value_kind != "text":
            raise JaasError(f'expected key="value" at option {at // 3 + 1}')
        options[key] = value
    return JaasEntry(module, options)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return the tokens: ("text", a word or a quoted text) or ("sign", "=" or ";")."""
    found = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise JaasError(f"a quote without its end, or a stray sign, at character {at + 1}")
        at = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            found.append(("text", _ESCAPE.sub(_unescape, quoted)))
        elif match["word"] is not None:
            found.append(("text", match["word"]))
        elif match["sign"] is not None:
            found.append(("sign", match["sign"]))
    return found


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[1])
