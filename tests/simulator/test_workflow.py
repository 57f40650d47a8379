"""What of a workflow file is read, and what is refused with which words."""

from __future__ import annotations

import pytest

from runherd.simulator.workflow import parse_workflow
from runherd.simulator.yaml_nodes import WorkflowError

MINIMAL = """
on: push
jobs:
  build:
    runs-on: one
    steps:
      - run: make
"""

FULL = """
name: CI
run-name: by ${{ github.actor }}
on:
  push:
    branches: [main]
permissions: read-all
env:
  LEVEL: 3
defaults:
  run:
    shell: sh
jobs:
  build:
    name: Build on ${{ matrix.os }}
    runs-on: [one, "${{ matrix.os }}"]
    strategy:
      fail-fast: false
      max-parallel: 2
      matrix:
        os: [linux, mac]
        include:
          - os: linux
            extra: yes
    env:
      OS: ${{ matrix.os }}
    timeout-minutes: 5
    continue-on-error: ${{ matrix.os }}
    steps:
      - uses: actions/checkout@v4
        with:
          ref: main
      - name: Compile
        id: compile
        run: |
          make ${{ env.OS }}
        shell: bash
        working-directory: src
        env:
          LEVEL: ${{ env.LEVEL }}
        continue-on-error: true
        timeout-minutes: 0.5
  deploy:
    needs: build
    runs-on:
      group: big
      labels: one
    steps:
      - run: ./deploy
"""


def test_a_minimal_workflow() -> None:
    workflow = parse_workflow(MINIMAL, "ci.yml")
    assert workflow.name == "ci.yml"
    [job] = workflow.jobs.values()
    assert (job.id, job.line, job.labels, job.group, job.needs, job.matrix) == ("build", 5, ("one",), "", (), None)
    assert [(step.name, step.run, step.shell) for step in job.steps] == [("Run make", "make", "")]


def test_everything_that_is_supported() -> None:
    workflow = parse_workflow(FULL, "ci.yml")
    assert (workflow.name, workflow.env) == ("CI", (("LEVEL", "3"),))
    build, deploy = workflow.jobs.values()
    assert build.labels == ("one", "${{ matrix.os }}")
    assert build.matrix is not None
    assert build.matrix.combinations == ({"os": "linux", "extra": "yes"}, {"os": "mac"})
    assert (build.matrix.fail_fast, build.matrix.max_parallel) == (False, 2)
    assert build.env == (("OS", "${{ matrix.os }}"),)
    assert (build.timeout_minutes, build.continue_on_error) == ("5", "${{ matrix.os }}")
    checkout, compile_step = build.steps
    assert (checkout.uses, checkout.run) == ("actions/checkout@v4", "")
    assert compile_step.run == "make ${{ env.OS }}\n"
    assert (compile_step.shell, compile_step.working_directory) == ("bash", "src")
    assert (compile_step.continue_on_error, compile_step.timeout_minutes) == ("true", "0.5")
    assert (deploy.needs, deploy.group, deploy.labels) == (("build",), "big", ("one",))
    assert deploy.steps[0].shell == "sh"


def job(text: str, indent: str = "    ") -> str:
    lines = "\n".join(indent + line for line in text.strip("\n").splitlines())
    return f"jobs:\n  build:\n{lines}\n"


STEPS = "runs-on: one\nsteps:\n  - run: make"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "must hold one YAML document"),
        ("a: [", 2, "not valid YAML"),
        ("- a", 1, "the workflow must be a mapping"),
        ("name: x", 1, "needs jobs"),
        ("jobs: {}", 1, "needs jobs"),
        ("jobs:\n  a:\n    runs-on: x", 3, "jobs.a needs steps"),
        ("concurrency: x\n" + job(STEPS), 1, "concurrency is not supported"),
        ("name: a\nname: b\n" + job(STEPS), 2, "'name' stands in the workflow twice"),
        (job("steps:\n  - run: make"), 3, "needs runs-on"),
        (job("runs-on: one\nsteps: []"), 4, "needs steps"),
        (job("runs-on: []\nsteps:\n  - run: x"), 3, "runs-on names no label and no group"),
        (job("runs-on: '${{ env.X }}'\nsteps:\n  - run: x"), 3, "${{ env.X }} can't be used here"),
        (job("if: always()\n" + STEPS), 3, "jobs.build.if is not supported"),
        (job("container: x\n" + STEPS), 3, "jobs.build.container is not supported"),
        (job("services: {}\n" + STEPS), 3, "jobs.build.services is not supported"),
        (job("uses: a/b/.github/workflows/c.yml@v1\n" + STEPS), 3, "jobs.build.uses is not supported"),
        (job("needs: other\n" + STEPS), 3, "needs 'other', which is not a job"),
        (job("needs: build\n" + STEPS), 3, "job 'build' needs itself"),
        (job("timeout-minutes: soon\n" + STEPS), 3, "timeout-minutes must be a number above 0"),
        (job("timeout-minutes: 0\n" + STEPS), 3, "timeout-minutes must be a number above 0"),
        (job("continue-on-error: maybe\n" + STEPS), 3, "must be true or false"),
        (job("strategy: {}\n" + STEPS), 3, "needs a matrix"),
        (job("strategy:\n  matrix:\n    a: ${{ fromJSON('[1]') }}\n" + STEPS), 5, "expressions in a matrix"),
        (job("strategy:\n  matrix:\n    a: 5\n" + STEPS), 5, "must be a list"),
        (job("strategy:\n  matrix:\n    a: []\n" + STEPS), 5, "has no values"),
        (job("strategy:\n  max-parallel: 0\n  matrix:\n    a: [1]\n" + STEPS), 4, "above 0"),
        (job("strategy:\n  matrix:\n    a: [1]\n    exclude: [{a: 1}]\n" + STEPS), 5, "no combination left"),
        (job("runs-on: one\nsteps:\n  - name: x"), 5, "needs either run or uses"),
        (job("runs-on: one\nsteps:\n  - run: x\n    uses: y"), 5, "needs either run or uses"),
        (job("runs-on: one\nsteps:\n  - run: x\n    if: failure()"), 6, "steps[0].if is not supported"),
        (job("runs-on: one\nsteps:\n  - run: x\n    shell: cmd"), 6, "'cmd' is not one of bash, sh, python, pwsh"),
        (job("runs-on: one\nsteps:\n  - run: ${{ secrets.X }}"), 5, "only names of matrix, env or github"),
        (job("runs-on: one\nsteps:\n  - run: ${{ matrix.a || 'b' }}"), 5, "only names of matrix, env or github"),
        (job("runs-on: one\nsteps:\n  - run: ${{ github.token }}"), 5, "github.token }} is not known here"),
        (job("runs-on: one\nsteps:\n  - run: echo ${{ matrix.a"), 5, "doesn't end with }}"),
        (job("env:\n  A=B: x\n" + STEPS), 4, "jobs.build.env: 'A=B' can't be the name of an environment variable"),
        ("env:\n  '': x\n" + job(STEPS), 2, "env: '' can't be the name"),
        (job("runs-on: one\nsteps:\n  - run: x\n    env: {a=: 1}"), 6, "steps[0].env: 'a=' can't be the name"),
        (job("strategy:\n  matrix: ${{ fromJSON('{}') }}\n" + STEPS), 4, "expressions in a matrix"),
        (job("strategy:\n  matrix: {}\n" + STEPS), 4, "neither an axis nor an include"),
        (job("strategy: ${{ matrix.x }}\n" + STEPS), 3, "an expression that gives a mapping is not supported"),
        (job("strategy:\n  matrix:\n    a: [1, 2]\n    exclude: [{b: 1}]\n" + STEPS), 5, "exclude names 'b'"),
        (job("runs-on: one\nsteps:\n  - {id: a, run: x}\n  - {id: A, run: x}"), 6, "has the id 'A' already"),
        (job("runs-on: one\nsteps:\n  - {id: a b, run: x}"), 5, "'a b' can't be an id"),
        ("jobs: {a b!: {runs-on: x, steps: [{run: x}]}}", 1, "'a b!' can't be an id"),
        ("name: !foo x\n" + job(STEPS), 1, "YAML tags are not supported: !foo"),
        (job('runs-on: one\nsteps:\n  - run: "a\\0b"'), 5, "NUL character"),
        (job("timeout-minutes: 1e999\n" + STEPS), 3, "must be a number above 0"),
        (job(f"timeout-minutes: {'9' * 5000}\n" + STEPS), 3, "too long for a number"),
        ("name: x\ndefaults: " + "[" * 60 + "]" * 60, 2, "levels deep"),
        ("name: x\nenv: &a [*a]", 2, "stands inside of what it names"),
        ("name: x\nenv: \x01", 2, "U+0001 may not stand in YAML"),
    ],
)
def test_what_cannot_be_read_is_refused_with_file_line_and_reason(text: str, line: int, reason: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        parse_workflow(text, "ci.yml")
    assert reason in caught.value.reason
    assert caught.value.line == line
    assert str(caught.value).startswith(f"ci.yml:{line}: ")


def test_needs_that_go_round_in_a_circle_are_refused() -> None:
    text = "jobs:\n" + "".join(
        f"  {name}:\n    needs: {needed}\n    runs-on: x\n    steps:\n      - run: x\n"
        for name, needed in (("a", "b"), ("b", "c"), ("c", "a"))
    )
    with pytest.raises(WorkflowError, match="needs itself, through a -> b -> c"):
        parse_workflow(text, "ci.yml")


def test_words_are_read_as_yaml_1_2_does() -> None:
    text = job("strategy:\n  matrix:\n    a: [yes, on, true, 010, 1.10, null, '1', 0x1F, 1_000]\n" + STEPS)
    matrix = parse_workflow(text, "ci.yml").jobs["build"].matrix
    assert matrix is not None
    assert [each["a"] for each in matrix.combinations] == ["yes", "on", True, 10, 1.1, None, "1", 31, "1_000"]


def test_a_file_that_is_not_utf_8_is_refused_with_its_line() -> None:
    with pytest.raises(WorkflowError, match=r"ci\.yml:2: not UTF-8: byte 0xe9"):
        parse_workflow(b"name: x\non: \xe9\n", "ci.yml")
    assert parse_workflow(MINIMAL.encode(), "ci.yml") == parse_workflow(MINIMAL, "ci.yml")


def test_aliases_stand_for_what_they_name() -> None:
    text = job("strategy:\n  matrix:\n    a: &list [1, 2]\n    b: *list\n" + STEPS)
    matrix = parse_workflow(text, "ci.yml").jobs["build"].matrix
    assert matrix is not None
    assert len(matrix.combinations) == 4


def _laughs() -> str:
    lists = "\n".join(
        f"    a{level}: &a{level} [{', '.join([f'*a{level - 1}' if level else 'ha'] * 10)}]" for level in range(12)
    )
    return job(f"strategy:\n  matrix:\n{lists}\n" + STEPS)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (_laughs(), 10, "too large"),
        (
            job("strategy:\n  matrix:\n" + "".join(f"    a{i}: {[0] * 200}\n" for i in range(5)) + STEPS),
            4,
            "320000000000",
        ),
        (job(f"strategy:\n  matrix:\n    a: [1]\n    exclude: [{'{a: 2},' * 2000}]\n" + STEPS), 4, "exclude has 2000"),
    ],
)
def test_what_would_fill_the_memory_is_refused_before_it_does(text: str, line: int, reason: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        parse_workflow(text, "ci.yml")
    assert caught.value.line >= line
    assert reason in caught.value.reason
