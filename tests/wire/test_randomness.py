from __future__ import annotations

from random import Random, SystemRandom

from hypothesis import given
from hypothesis import strategies as st

from runherd.wire.randomness import jittered, name_suffix, uuid4


@given(st.integers(), st.integers(1, 20))
def test_suffixes_are_made_of_kubernetes_own_alphabet(seed: int, length: int) -> None:
    suffix = name_suffix(Random(seed), length)
    assert len(suffix) == length
    assert set(suffix) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert suffix == name_suffix(Random(seed), length)


def test_suffixes_differ() -> None:
    random = Random(1)
    assert len({name_suffix(random) for _ in range(1000)}) > 990
    assert len(name_suffix(SystemRandom())) == 5


@given(st.integers(), st.floats(0, 1e6), st.floats(0, 10))
def test_jitter_only_adds(seed: int, seconds: float, factor: float) -> None:
    assert seconds <= jittered(Random(seed), seconds, factor) <= seconds * (1 + factor)


def test_uuids_are_of_version_4() -> None:
    random = Random(1)
    identifiers = [uuid4(random) for _ in range(100)]
    assert {identifier.version for identifier in identifiers} == {4}
    assert len(set(identifiers)) == 100
    assert identifiers[0] == uuid4(Random(1))
