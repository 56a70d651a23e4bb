"""`headgate.java.pattern` reads regular expressions as java.util.regex does.

Java accepts every expression that we accept, and both match the same names. The expressions that
Java alone accepts are counted, and the message that refuses one names it. A failure names its seed:
``HEADGATE_SEED=<seed> pytest tests/differential`` runs it alone.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from subprocess import Popen

import pytest
from support.depth import tries

from headgate.java.pattern import JavaPatternError, compile_java

SEED = int(os.environ.get("HEADGATE_SEED") or random.SystemRandom().randrange(10**9))
EXPRESSIONS = tries(500, 2_000)
pytestmark = pytest.mark.slow

BOUNDS = ("*", "+", "?", "{2}", "{1,}", "{0,2}")

NAMES = (
    *("", "a", "b", "ab", "aa", "aab", "abc", "A", "B", "aB", "x", "y", "z", "-", ".", "_", "]"),
    *("^", "logs-a1", "logs-a1-dlq", "logs-x1", "Logs-A1", "logs_b2", "logs.c3", "logs.", "1"),
    *("12", "a1", "orders-eu", "orders-us", "orders-eux", "prod.orders", "&", "a&b", "[", "a-"),
    *("{", "}", "a{1}"),
)

TAKEN = (
    *("logs-.*", r"logs-[a-z&&[^x]]\d", r"(?i)logs-a\d", r"\Qlogs.\E.*", "(orders|logs)[-._].*"),
    *("a(?i)b|c", "(?:a(?i)b)c", "(?-i:a)(?i:b)", r"\p{Alpha}+", r"\P{Punct}+", r"\p{XDigit}*"),
    *("[^a-d[m-p]]", "[a-d[m-p]]", "[a-z&&b-d&&c]", "[^a-z&&b-d]", "[]a]+", "[^]a]+", "[a&b]+"),
    *("(?<first>a)(?<second>b)", "(?!.*-dlq).*", "(?=l).*", ".*(?<=1)", ".*(?<!1)", "(?>a|ab)c"),
    *("a++b", "a*+ab", "a{2}b?", "a{1,}b", "a{0,2}?b", r"\A.\z", r"\ba\b", "^a$", r"a\Z"),
    *(r"\x61", r"\x{62}", r"\u0061b", r"[\w.-]+", r"[\Q]^\E]", r"\-", "[a-]", "[-a]+", "[a-c-]+"),
    *("}", "]", "", "|a", "a|", "(?m)^a$", "(?s).*", "(?d)a", "[^x]*", r"\D+", r"\W", r"\h*a"),
    *(r"[\d&&[^1]]", "(?i)[a-c&&[B]]", "(?i)[^a]", "(?:a|ab)(?:c|bc)?", "(?:|a)+", "(?:a?){3}"),
    *("[a-c&&[^b][^c]]", r"[a\-z]+", "[.]", "[$^]", r"\.", r"\$|\^", r"\Qa\Eb", r"\\Qa", "x*+"),
    *("x?+y", "a{2}+"),
)
NO_EXPRESSIONS = (
    *("*", "a**", "[a", "(a", "a)", "a{,2}", "a{x", "{1", "[b-a]", "(?<a>x)(?<a>y)", "(?P<a>x)"),
    *("(?#c)", r"\j", r"\E", "(?<1>a)", "a{2,1}", r"\x{zz}", r"\p{Nope}", "+a", "a|*", "(?z)"),
    *("(?", "["),
)
NOT_UNDERSTOOD = (
    *(r"(a)\1", r"\p{L}+", "(?x)a b", "a{2}{3}", r"\R", r"\0141", r"\cA", "é", "(?<=a|bc)d"),
    *("[a-z&&[aeiou]x]", "[a&&]", r"(?i)\p{Lower}", r"(?U)\w", r"\X", r"(?<n>a)\k<n>"),
)


@pytest.fixture
def javas(java_program: Callable[..., "Popen[str]"]) -> Callable[[str, Sequence[str]], str]:
    java = java_program("WholeMatches")

    def ask(expression: str, names: Sequence[str]) -> str:
        assert java.stdin is not None and java.stdout is not None
        java.stdin.write(f"{expression}\n{' '.join(names)}\n")
        java.stdin.flush()
        return java.stdout.readline().rstrip("\n")

    return ask


def ours(expression: str, names: Sequence[str]) -> str:
    match = compile_java(expression).match
    return "".join("1" if match(name) else "0" for name in names)


def test_expressions_that_are_told(javas: Callable[[str, Sequence[str]], str]) -> None:
    for expression in TAKEN:
        assert javas(expression, NAMES) == ours(expression, NAMES), expression
    for expression in NO_EXPRESSIONS:
        assert javas(expression, NAMES).startswith("no: "), expression
        with pytest.raises(JavaPatternError, match="near index"):
            compile_java(expression)
    for expression in NOT_UNDERSTOOD:
        assert not javas(expression, NAMES).startswith("no: "), expression
        with pytest.raises(JavaPatternError, match=r"not understood|no name of a topic|Dangling"):
            compile_java(expression)


def test_random_expressions(javas: Callable[[str, Sequence[str]], str]) -> None:
    taken = refused = matched = 0
    for seed in range(SEED, SEED + EXPRESSIONS):
        chance = random.Random(seed)
        expression = "".join(pieces(chance, 0))
        names = ["".join(chance.choices("aAbBx1-.", k=chance.randrange(6))) for _ in range(40)]
        found = javas(expression, names)
        if "obvious maximum length" in found:
            continue  # of a look-ahead within a look-behind: whose length is plain, 0
        try:
            mine = ours(expression, names)
        except JavaPatternError:
            refused += 1
            continue
        assert found == mine, f"HEADGATE_SEED={seed}: {expression!r} of {names}"
        taken += 1
        matched += "1" in mine
    print(f"{taken} taken, {matched} of them match something, {refused} refused, from {SEED} on")
    assert taken > EXPRESSIONS // 2 < matched + EXPRESSIONS // 4


def pieces(chance: random.Random, depth: int) -> Iterator[str]:
    for _ in range(chance.randint(1, 4)):
        yield piece(chance, depth)
        if chance.random() < 0.35:
            yield chance.choice(BOUNDS) + chance.choice(["", "", "?", "+"])
        if chance.random() < 0.08:
            yield "|"
        if chance.random() < 0.05:
            yield chance.choice(["(?i)", "(?-i)", "^", "$", r"\b", r"\Q.-\E"])


def piece(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if depth < 3 and kind < 0.25:
        opening = chance.choice(["(", "(?:", "(?i:", "(?-i:", "(?=", "(?!", "(?>", "(?<=", "(?<!"])
        return opening + "".join(pieces(chance, depth + 1)) + ")"
    if kind < 0.5:
        return class_of(chance, 0)
    if kind < 0.62:
        return chance.choice([".", r"\d", r"\w", r"\W", r"\D", r"\p{Alpha}", r"\P{Digit}", r"\x41"])
    return chance.choice(["a", "b", "A", "x", "1", "-", r"\."])


def class_of(chance: random.Random, depth: int) -> str:
    def item() -> str:
        if depth < 2 and chance.random() < 0.2:
            return class_of(chance, depth + 1)
        simple = ["a", "b", "B", "x", "1", ".", "a-b", "A-Z", "a-z", r"\d", r"\W", "-", "&", "^"]
        return chance.choice(simple)

    found = "".join(item() for _ in range(chance.randint(1, 3)))
    while chance.random() < 0.3:
        found += "&&" + "".join(item() for _ in range(chance.randint(1, 2)))
    return f"[{chance.choice(['', '', '^'])}{found}]"
