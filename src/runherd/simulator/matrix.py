"""``strategy.matrix``: the combinations of its values, less what is excluded, plus what is included."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

__all__ = ["MAX_COMBINATIONS", "combinations"]

#: GitHub's own limit on the jobs that one matrix makes.
MAX_COMBINATIONS = 256

Combination = dict[str, object]


def combinations(
    axes: Mapping[str, Sequence[object]], include: Sequence[Combination], exclude: Sequence[Combination]
) -> list[Combination]:
    """All combinations in GitHub's order.

    An ``exclude`` entry takes away what agrees with all its values. An ``include`` entry is added to each combination
    where it changes no value of an axis, and stands alone where it fits none.
    Raises ``ValueError`` when there are none, or too many.
    """
    originals = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())] if axes else []
    originals = [each for each in originals if not any(_agrees(each, entry) for entry in exclude)]
    extended = [dict(each) for each in originals]
    alone: list[Combination] = []
    for entry in include:
        fits = False
        for original, combination in zip(originals, extended, strict=True):
            if all(name not in original or original[name] == value for name, value in entry.items()):
                combination.update(entry)
                fits = True
        if not fits:
            alone.append(dict(entry))
    found = extended + alone
    if not found:
        raise ValueError("the matrix has no combination left")
    if len(found) > MAX_COMBINATIONS:
        raise ValueError(f"the matrix has {len(found)} combinations, more than {MAX_COMBINATIONS}")
    return found


def _agrees(combination: Combination, entry: Combination) -> bool:
    return all(name in combination and combination[name] == value for name, value in entry.items())
