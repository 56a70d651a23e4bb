"""Our transforms and predicates do what Connect's own do, on random records and configs.

A failure names its seed: ``HEADGATE_SEED=<seed> pytest tests/differential -k Cast`` runs it alone.
"""

import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.java.transform_cases import CLASSES, DAY_MS, Case, Cases
from support.java.transform_records import JavaTransforms, Record, comparable, our_answer

ONE = os.environ.get("HEADGATE_SEED")
FIRST = int(ONE) if ONE else random.SystemRandom().randrange(10**9)
IN_A_CASE: Final = 10
FEW, MANY = 200, 2_000
"""Records of each class that both transform, and whose results are compared."""
UNLIKE: Final = ("NullPointerException", "ClassCastException", "ArrayIndexOutOfBoundsException")
"""Java's own bugs: there we only have to say what is wrong."""
BEGINNINGS: Final = (
    "Timestamp missing on record: ",
    "Invalid value null for configuration static.value: No value specified for static field: ",
    "Invalid default value",
    "RegexRouter on topic ",
)
"""Of messages that end with Java's `toString` of an object."""

REFUSED: Final = (
    "is in no year from 1 to 9999",  # Python has no such date
    "is not supported",  # see headgate.java.simple_date_format
    "field name duplication",  # Java: only with a schema
)
NULL: Final = "Invalid value: null used for required field"
NO_STRUCT_DEFAULTS: Final = ["DataException", "Struct schemas do not match."]
"""Java's error of a struct that is the default of a field: ours takes it."""


@pytest.fixture(scope="module")
def java(java_program: Callable[..., "subprocess.Popen[str]"]) -> JavaTransforms:
    return JavaTransforms(java_program("Transforms"))


@pytest.mark.parametrize(
    "records", [FEW, pytest.param(MANY, marks=pytest.mark.exhaustive)], ids=["few", "many"]
)
@pytest.mark.parametrize("name", CLASSES)
def test_records_become_what_java_makes_of_them(
    java: JavaTransforms, name: str, records: int
) -> None:
    """Counted are records that both transform; errors and configs that are refused are compared,
    too, and come on top."""
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + (1 if ONE else records)):
        # A date before 1970 that is cast to a text is not Java's: see the next test.
        first_ms = {"first_ms": DAY_MS} if name.startswith("Cast") else {}
        case = Cases(random.Random(f"{name} {seed}"), **first_ms).case(name, IN_A_CASE)
        counts += compare(java, case, f"HEADGATE_SEED={seed}")
        if counts["transformed"] >= records:
            break
    print(name, dict(counts))
    assert ONE or counts["transformed"] >= records, counts


def compare(java: JavaTransforms, case: Case, seed: str) -> Counter[str]:
    """Records by what became of them. Raises AssertionError: not as Java transforms them."""
    theirs = java.answer(case.name, case.config, case.records)
    ours = our_answer(case.name, case.config, case.records)
    where = f"{seed}: {case.name} {case.config}"
    counts: Counter[str] = Counter()
    if any(text in ours.get("refused", "") for text in REFUSED):
        return counts
    if "refused" in theirs or "refused" in ours:
        assert "refused" in theirs and "refused" in ours, f"{where}: {theirs} {ours}"
        assert_error(theirs["refused"], ours["refused"], where)
        counts["configs refused"] = 1
        return counts
    pairs = zip(case.records, theirs["answers"], ours["answers"], strict=True)
    for record, their, our in pairs:
        at = f"{where}\nJava {their}\nours {our}\n{record}"
        if is_of_another_field(case, record):
            continue
        if "error" in their or "error" in our:
            if any(text in our.get("error", "") for text in REFUSED):
                continue
            if their.get("error") == NO_STRUCT_DEFAULTS:
                continue
            assert "error" in their and "error" in our, at
            assert_error(their["error"], our["error"], at)
            counts["errors"] += 1
        else:
            assert comparable(without_texts(their)) == comparable(without_texts(our)), at
            counts["transformed"] += 1
    return counts


def is_of_another_field(case: Case, record: Record) -> bool:
    """Return whether Java's ReplaceField takes an existing field for one that was renamed to its
    name."""
    if not case.name.startswith("ReplaceField"):
        return False
    schema = record.key_schema if case.name.endswith("Key") else record.value_schema
    targets = {
        pair.split(":")[1] for pair in case.config.get("renames", "").split(",") if ":" in pair
    }
    return schema is not None and any(field.name in targets for field in schema.fields)


def assert_error(their: list[str], our: str, where: str) -> None:
    kind, message = their
    if kind in UNLIKE or our.startswith(BEGINNINGS):
        return
    if our.startswith(NULL) != message.startswith(NULL):
        return  # two things are wrong; the order of the fields decides in Java
    assert our == message, where


def without_texts(answer: dict[str, Any]) -> dict[str, Any]:
    """Schemas of headers with text are left out: a text needs none."""
    if "record" not in answer:
        return answer
    headers = [
        [
            key,
            None if schema and schema["type"] == "STRING" and not schema["name"] else schema,
            held,
        ]
        for key, schema, held in answer["record"]["headers"]
    ]
    return {"record": {**answer["record"], "headers": headers}}
