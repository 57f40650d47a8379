from __future__ import annotations

import pytest

from runherd.resources.errors import BuildError
from runherd.resources.scale_set import require_scale_set_id, scale_set_id
from tests.resources.objects import runner_set


@pytest.mark.parametrize(("text", "expected"), [("7", 7), ("+7", 7), ("007", 7)])
def test_an_id(text: str, expected: int) -> None:
    annotated = runner_set(annotations={"runner-scale-set-id": text})
    assert scale_set_id(annotated) == require_scale_set_id(annotated) == expected


@pytest.mark.parametrize("text", ["", "0", "-7", "seven", " 7", "7_0", "7.0", "\u0667", "9" * 30])
def test_no_id(text: str) -> None:
    annotated = runner_set(annotations={"runner-scale-set-id": text})
    assert scale_set_id(annotated) == 0
    with pytest.raises(BuildError, match="arc-runners/arc-runner-set holds no scale set id"):
        require_scale_set_id(annotated)


def test_no_annotation() -> None:
    assert scale_set_id(runner_set(annotations={})) == 0
