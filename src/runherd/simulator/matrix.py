"""``strategy.matrix``: the combinations of its values, less what is excluded, plus what is included."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

__all__ = ["MAX_COMBINATIONS", "combinations"]

#: GitHub's own limit on the jobs that one matrix makes.
MAX_COMBINATIONS = 256
#: Before anything is excluded.
_MAX_PRODUCT = 10_000
_MAX_ENTRIES = 1_000

Combination = dict[str, object]


def combinations(
    axes: Mapping[str, Sequence[object]], include: Sequence[Combination], exclude: Sequence[Combination]
) -> list[Combination]:
    """All combinations in GitHub's order.

    An ``exclude`` entry takes away what agrees with all its values. An ``include`` entry is added to each combination
    where it changes no value of an axis, and stands alone where it fits none.
    Raises ``ValueError`` when there are none, or too many, and for an ``exclude`` entry that names no axis.
    """
    if not axes and not include:
        raise ValueError("the matrix has neither an axis nor an include")
    for name in {name: None for entry in exclude for name in entry}:
        if name not in axes:
            raise ValueError(f"exclude names {name!r}, which is not an axis of the matrix")
    # An exclude can't save what is far too large: the product must not be made, only to be counted.
    count = math.prod(len(values) for values in axes.values()) if axes else 0
    if count > _MAX_PRODUCT:
        _check_count(count)
    for what, entries in (("include", include), ("exclude", exclude)):
        if len(entries) > _MAX_ENTRIES:
            raise ValueError(f"{what} has {len(entries)} entries, more than {_MAX_ENTRIES}")
    originals = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())] if axes else []
    originals = [each for each in originals if not any(_agrees(each, entry) for entry in exclude)]
    _check_count(len(originals))
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
    _check_count(len(found))
    return found


def _check_count(count: int) -> None:
    if count > MAX_COMBINATIONS:
        raise ValueError(f"the matrix has {count} combinations, more than {MAX_COMBINATIONS}")


def _agrees(combination: Combination, entry: Combination) -> bool:
    return all(name in combination and combination[name] == value for name, value in entry.items())
