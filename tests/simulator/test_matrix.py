"""Combinations as GitHub's documentation shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.simulator.matrix import combinations


def test_axes_vary_from_the_last_to_the_first() -> None:
    assert combinations({"a": [1, 2], "b": ["x", "y"]}, [], []) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_the_include_example_of_githubs_documentation() -> None:
    include: list[dict[str, object]] = [
        {"color": "green"},
        {"color": "pink", "animal": "cat"},
        {"fruit": "apple", "shape": "circle"},
        {"fruit": "banana"},
        {"fruit": "banana", "animal": "cat"},
    ]
    assert combinations({"fruit": ["apple", "pear"], "animal": ["cat", "dog"]}, include, []) == [
        {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
        {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
        {"fruit": "pear", "animal": "cat", "color": "pink"},
        {"fruit": "pear", "animal": "dog", "color": "green"},
        {"fruit": "banana"},
        {"fruit": "banana", "animal": "cat"},
    ]


def test_what_is_excluded_goes_before_anything_is_included() -> None:
    axes: dict[str, list[object]] = {"os": ["a", "b"], "version": [1, 2]}
    assert combinations(axes, [{"os": "a", "version": 1, "only": True}], [{"os": "a"}]) == [
        {"os": "b", "version": 1},
        {"os": "b", "version": 2},
        {"os": "a", "version": 1, "only": True},
    ]


def test_include_alone_makes_jobs() -> None:
    assert combinations({}, [{"a": 1}, {"a": 2}], []) == [{"a": 1}, {"a": 2}]


def test_too_many_and_none_are_refused() -> None:
    with pytest.raises(ValueError, match="257 combinations"):
        combinations({"a": list(range(257))}, [], [])
    with pytest.raises(ValueError, match="no combination"):
        combinations({"a": [1]}, [], [{"a": 1}])


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=3))
def test_exclude_takes_away_exactly_what_agrees(axes: dict[str, list[int]]) -> None:
    axes = {"z": [7], **axes}
    every = combinations(axes, [], [])
    first = every[0]
    if any(each != first for each in every):
        assert combinations(axes, [], [first]) == [each for each in every if each != first]
