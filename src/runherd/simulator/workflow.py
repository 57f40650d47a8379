"""Reads GitHub workflow files: what of them can be run here, and a complaint with file and line about the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from runherd.simulator import matrix as matrices
from runherd.simulator.expressions import check
from runherd.simulator.yaml_nodes import Item, WorkflowError, load

__all__ = ["JobDefinition", "Matrix", "StepDefinition", "Workflow", "parse_workflow"]

#: A name and a text with expressions.
Variable = tuple[str, str]

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_SHELLS = ("bash", "sh", "python", "pwsh")

# Keys that change nothing about what runs here.
_IGNORED = frozenset({"on", "permissions", "run-name"})


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """A step. ``run`` is empty for a step that ``uses`` an action: those are skipped."""

    name: str
    run: str = ""
    uses: str = ""
    shell: str = ""
    working_directory: str = ""
    env: tuple[Variable, ...] = ()
    continue_on_error: str = "false"
    timeout_minutes: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """``strategy``: the combinations, and how their jobs go together."""

    combinations: tuple[dict[str, object], ...]
    #: The axes' names, in order: what job names show.
    axes: tuple[str, ...] = ()
    fail_fast: bool = True
    max_parallel: int = matrices.MAX_COMBINATIONS


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """A job. Texts may hold expressions; they are known to be well-formed."""

    id: str
    line: int
    name: str
    labels: tuple[str, ...]
    group: str
    needs: tuple[str, ...]
    matrix: Matrix | None
    env: tuple[Variable, ...]
    timeout_minutes: str
    continue_on_error: str
    steps: tuple[StepDefinition, ...]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow file."""

    path: str
    name: str
    env: tuple[Variable, ...]
    #: By id, in the file's order.
    jobs: dict[str, JobDefinition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Defaults:
    shell: str = ""
    working_directory: str = ""


def parse_workflow(text: str | bytes, path: str) -> Workflow:
    """Read a workflow file; ``path`` names it, bytes are UTF-8.

    Raises :class:`WorkflowError` for the first thing it can't take.
    """
    root = load(text, path)
    fields = _fields(root, {"name", "env", "defaults", "jobs"})
    if "jobs" not in fields:
        raise root.error("a workflow needs jobs")
    defaults = _defaults(fields.get("defaults"), _Defaults())
    jobs = {job_id: _job(job_id, item, defaults) for job_id, item in fields["jobs"].entries()}
    if not jobs:
        raise fields["jobs"].error("a workflow needs jobs")
    _check_needs(path, jobs)
    name = fields["name"].text() if "name" in fields else path
    return Workflow(path, name, _env(fields.get("env"), ("github",)), jobs)


def _fields(item: Item, supported: Collection[str]) -> dict[str, Item]:
    found = {}
    for key, value in item.entries():
        if key in supported:
            found[key] = value
        elif key not in _IGNORED:
            raise value.error(f"{value.what or key} is not supported")
    return found


def _text(item: Item | None, contexts: Collection[str], default: str = "") -> str:
    if item is None:
        return default
    text = item.text()
    try:
        check(text, contexts)
    except ValueError as error:
        raise item.error(f"{item.what}: {error}") from None
    return text


def _env(item: Item | None, contexts: Collection[str]) -> tuple[Variable, ...]:
    if item is None:
        return ()
    variables = []
    for name, value in item.entries():
        if not name or "=" in name:
            raise value.error(f"{item.what}: {name!r} can't be the name of an environment variable")
        variables.append((name, _text(value, contexts)))
    return tuple(variables)


def _defaults(item: Item | None, outer: _Defaults) -> _Defaults:
    if item is None:
        return outer
    fields = _fields(item, {"run"})
    if "run" not in fields:
        return outer
    run = _fields(fields["run"], {"shell", "working-directory"})
    return _Defaults(
        _shell(run.get("shell"), outer.shell), _text(run.get("working-directory"), (), outer.working_directory)
    )


def _shell(item: Item | None, default: str) -> str:
    shell = _text(item, (), default)
    if item is not None and shell not in _SHELLS and "{0}" not in shell:
        raise item.error(f"{item.what} {shell!r} is not one of {', '.join(_SHELLS)}, or a command with {{0}} in it")
    return shell


def _flag(item: Item | None, contexts: Collection[str], default: str) -> str:
    text = _text(item, contexts, default)
    if item is not None and "${{" not in text and text not in ("true", "false"):
        raise item.error(f"{item.what} must be true or false")
    return text


def _minutes(item: Item | None, contexts: Collection[str]) -> str:
    text = _text(item, contexts)
    if item is not None and "${{" not in text:
        value = item.value()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise item.error(f"{item.what} must be a number above 0")
    return text


def _job(job_id: str, item: Item, defaults: _Defaults) -> JobDefinition:
    _check_id(job_id, item)
    fields = _fields(
        item,
        {
            "name",
            "runs-on",
            "needs",
            "strategy",
            "env",
            "defaults",
            "timeout-minutes",
            "continue-on-error",
            "steps",
        },
    )
    for required in ("runs-on", "steps"):
        if required not in fields:
            raise item.error(f"{item.what} needs {required}")
    defaults = _defaults(fields.get("defaults"), defaults)
    contexts = ("matrix", "github")
    labels, group = _runs_on(fields["runs-on"])
    steps = tuple(_step(step, defaults) for step in fields["steps"].items())
    if not steps:
        raise fields["steps"].error(f"{item.what} needs steps")
    _check_step_ids(fields["steps"])
    return JobDefinition(
        id=job_id,
        line=item.line,
        name=_text(fields.get("name"), contexts),
        labels=labels,
        group=group,
        needs=_strings(fields.get("needs")),
        matrix=_strategy(fields.get("strategy")),
        env=_env(fields.get("env"), contexts),
        timeout_minutes=_minutes(fields.get("timeout-minutes"), contexts),
        continue_on_error=_flag(fields.get("continue-on-error"), contexts, "false"),
        steps=steps,
    )


def _check_id(text: str, item: Item) -> None:
    if not _ID.fullmatch(text):
        raise item.error(
            f"{text!r} can't be an id: it must begin with a letter or _, and hold only letters, digits, - and _"
        )


def _check_step_ids(steps: Item) -> None:
    seen: set[str] = set()
    for step in steps.items():
        for key, value in step.entries():
            if key == "id":
                step_id = value.text()
                _check_id(step_id, value)
                if step_id.lower() in seen:
                    raise value.error(f"{value.what}: another step has the id {step_id!r} already")
                seen.add(step_id.lower())


def _strings(item: Item | None, contexts: Collection[str] = ()) -> tuple[str, ...]:
    if item is None:
        return ()
    if item.is_list():
        return tuple(_text(each, contexts) for each in item.items())
    return (_text(item, contexts),)


def _runs_on(item: Item) -> tuple[tuple[str, ...], str]:
    contexts = ("matrix", "github")
    labels: Item | None = item
    group = ""
    if item.is_mapping():
        fields = _fields(item, {"group", "labels"})
        group = _text(fields.get("group"), contexts)
        labels = fields.get("labels")
    names = _strings(labels, contexts)
    if not group and not any(names):
        raise item.error("runs-on names no label and no group")
    return names, group


def _strategy(item: Item | None) -> Matrix | None:
    if item is None:
        return None
    fields = _fields(item, {"matrix", "fail-fast", "max-parallel"})
    if "matrix" not in fields:
        raise item.error(f"{item.what} needs a matrix")
    max_parallel = matrices.MAX_COMBINATIONS
    if "max-parallel" in fields:
        value = fields["max-parallel"].value()
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise fields["max-parallel"].error("max-parallel must be a whole number above 0")
        max_parallel = value
    axes: dict[str, list[object]] = {}
    include: list[dict[str, object]] = []
    exclude: list[dict[str, object]] = []
    if not fields["matrix"].is_mapping():
        _refuse_expressions(fields["matrix"])
    for key, values in fields["matrix"].entries():
        _refuse_expressions(values)
        if key in ("include", "exclude"):
            (include if key == "include" else exclude).extend(_entry(each) for each in values.items())
        else:
            axes[key] = [each.value() for each in values.items()]
            if not axes[key]:
                raise values.error(f"{values.what} has no values")
    try:
        found = tuple(matrices.combinations(axes, include, exclude))
    except ValueError as error:
        raise fields["matrix"].error(str(error)) from None
    return Matrix(found, tuple(axes), _flag(fields.get("fail-fast"), (), "true") == "true", max_parallel)


def _entry(item: Item) -> dict[str, object]:
    return {key: value.value() for key, value in item.entries()}


def _refuse_expressions(item: Item) -> None:
    if "${{" in repr(item.value()):
        raise item.error(f"{item.what}: expressions in a matrix are not supported")


def _step(item: Item, defaults: _Defaults) -> StepDefinition:
    fields = _fields(
        item,
        {
            "id",
            "name",
            "run",
            "uses",
            "with",
            "shell",
            "env",
            "working-directory",
            "continue-on-error",
            "timeout-minutes",
        },
    )
    if ("run" in fields) == ("uses" in fields):
        raise item.error(f"{item.what} needs either run or uses")
    contexts = ("matrix", "github", "env")
    if "uses" in fields:
        uses = fields["uses"].text()
        return StepDefinition(name=fields["name"].text() if "name" in fields else uses, uses=uses)
    run = _text(fields["run"], contexts)
    first_line = run.strip().partition("\n")[0]
    return StepDefinition(
        name=_text(fields.get("name"), contexts, f"Run {first_line}"),
        run=run,
        shell=_shell(fields.get("shell"), defaults.shell),
        working_directory=_text(fields.get("working-directory"), contexts, defaults.working_directory),
        env=_env(fields.get("env"), contexts),
        continue_on_error=_flag(fields.get("continue-on-error"), ("matrix", "github"), "false"),
        timeout_minutes=_minutes(fields.get("timeout-minutes"), ("matrix", "github")),
    )


def _check_needs(path: str, jobs: dict[str, JobDefinition]) -> None:
    for job in jobs.values():
        for needed in job.needs:
            if needed not in jobs:
                raise WorkflowError(path, job.line, f"job {job.id!r} needs {needed!r}, which is not a job of this file")
    try:
        TopologicalSorter({job.id: job.needs for job in jobs.values()}).prepare()
    except CycleError as error:
        # It begins and ends with the same job, and each is needed by the next.
        circle: list[str] = error.args[1][:0:-1]
        first = circle.index(next(job_id for job_id in jobs if job_id in circle))
        circle = circle[first:] + circle[:first]
        job = jobs[circle[0]]
        reason = f"job {job.id!r} needs itself, through {' -> '.join(circle)}"
        raise WorkflowError(path, job.line, reason) from None
