"""Expressions that only name a value."""

from __future__ import annotations

import pytest

from runherd.simulator.expressions import check, evaluate, render


def test_matrix_and_github_values_are_filled_in_and_env_is_left_for_the_runner() -> None:
    matrix = {"os": "linux", "config": {"level": 3}}
    github = {"sha": "abc"}
    assert evaluate("plain", matrix, github) == "plain"
    assert evaluate("", matrix, github) == ""
    assert evaluate("${{ matrix.os }}-${{github.sha}}", matrix, github) == "linux-abc"
    assert evaluate("${{ matrix.config.level }}${{ matrix.none }}", matrix, github) == "3"
    assert evaluate("a ${{ env.X }} b", matrix, github) == ["a ", {"env": "X"}, " b"]
    assert evaluate("${{ github.workspace }}", matrix, github) == [{"github": "workspace"}]


def test_a_value_that_looks_like_an_expression_is_not_evaluated() -> None:
    assert evaluate("${{ matrix.a }}", {"a": "${{ env.SECRET }}"}, {}) == "${{ env.SECRET }}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "true"), (False, "false"), (3, "3"), (3.1, "3.1"), (2.0, "2"), (3.14159265, "3.14159265")],
)
def test_values_show_as_githubs_do(value: object, text: str) -> None:
    assert render(value) == text


def test_lists_and_objects_do_not_go_into_text() -> None:
    with pytest.raises(ValueError, match="a list or an object"):
        evaluate("${{ matrix.a }}", {"a": [1]}, {})


@pytest.mark.parametrize(
    "text",
    ["${{ secrets.A }}", "${{ matrix }}", "${{ matrix['a'] }}", "${{ github.sha == 'x' }}", "${{ }}", "x ${{ matrix.a"],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not supported|doesn't end"):
        check(text, ("matrix", "github", "env"))


def test_case_counts_for_environment_variables_only() -> None:
    check("${{ GITHUB.SHA }} ${{ Matrix.OS }}", ("matrix", "github"))
    assert evaluate("${{ GITHUB.Sha }} ${{ Matrix.OS }}", {"Os": "linux"}, {"sha": "abc"}) == "abc linux"
    assert evaluate("${{ Env.Path }}", {}, {}) == [{"env": "Path"}]


def test_a_text_that_expressions_make_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 131072 characters"):
        evaluate("${{ matrix.a }}" * 200, {"a": "x" * 1000}, {})
