"""The word that is meant by one that is misspelt."""

from collections.abc import Iterable


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word that the fewest edits of one letter make of `word`: at most a third of its letters,
    or two, and never all; None when none is as near."""
    best: tuple[int, str] | None = None
    limit = max(2, len(word) // 3)
    for known in sorted(words):
        if abs(len(word) - len(known)) > limit:  # nor would long words be quick to compare
            continue
        distance = _edits(word.lower(), known.lower())
        if best is None or distance < best[0]:
            best = (distance, known)
    return best[1] if best and best[0] <= limit and best[0] < len(word) else None


def _edits(left: str, right: str) -> int:
    """Insertions, deletions and changes of one letter that make `right` of `left`."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (a != b))
    return row[-1]
