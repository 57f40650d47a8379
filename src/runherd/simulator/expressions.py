"""The expressions that workflow files may use here: ``${{ matrix.x }}``, ``${{ env.x }}``, ``${{ github.x }}``.

Values of ``matrix`` and ``github`` are filled in when a run starts. Values of ``env`` are known only when the step
runs, since earlier steps can set them; so what is left is a :data:`Text` that the runner program completes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = ["GITHUB_NAMES", "Text", "check", "evaluate", "render"]

#: A string, or pieces of one: strings, and objects ``{"env": name}`` or ``{"github": name}`` for the runner to fill in.
Text = str | list[str | dict[str, str]]

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_NAME = re.compile(r"\s*(matrix|env|github)((?:\.[A-Za-z_][A-Za-z0-9_-]*)+)\s*")

#: Values of ``github`` that only the runner knows.
_RUNNER_SIDE = frozenset({"workspace"})

#: The values of ``github`` that there are; everything else would be made up.
GITHUB_NAMES = _RUNNER_SIDE | {
    "actor",
    "event_name",
    "job",
    "ref",
    "ref_name",
    "ref_type",
    "repository",
    "repository_owner",
    "run_attempt",
    "run_id",
    "run_number",
    "sha",
    "workflow",
    "workflow_ref",
}


def check(text: str, contexts: Collection[str]) -> None:
    """Raises ``ValueError`` unless all expressions in ``text`` name values of ``contexts`` that can be known."""
    for context, name in _names(text):
        if context not in contexts:
            allowed = " and ".join(contexts) or "none"
            raise ValueError(f"${{{{ {context}.{name} }}}} can't be used here (allowed: {allowed})")
        if context == "github" and name not in GITHUB_NAMES:
            raise ValueError(f"${{{{ github.{name} }}}} is not known here")


def _names(text: str) -> list[tuple[str, str]]:
    """The expressions in ``text`` as (context, dotted name). Raises ``ValueError`` for one that isn't only a name."""
    found = []
    for expression in _EXPRESSION.findall(text):
        match = _NAME.fullmatch(expression)
        if match is None:
            raise ValueError(
                f"expression ${{{{{expression}}}}} is not supported: only names of matrix, env or github values are"
            )
        found.append((match.group(1), match.group(2)[1:]))
    if "${{" in _EXPRESSION.sub("", text):
        raise ValueError("an expression begins with ${{ and doesn't end with }}")
    return found


def render(value: object) -> str:
    """A value as it shows in text. Raises ``ValueError`` for lists and objects."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, (str, int)):
        return str(value)
    raise ValueError("a list or an object can't be put into text")


def _look_up(values: Mapping[str, object], dotted: str) -> object:
    found: object = values
    for part in dotted.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def evaluate(text: str, matrix: Mapping[str, object], github: Mapping[str, object]) -> Text:
    """``text`` with its expressions replaced; names that don't exist are empty, as in GitHub's own evaluation."""
    pieces: list[str | dict[str, str]] = []

    def add(piece: str) -> None:
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        elif piece:
            pieces.append(piece)

    position = 0
    for match in _EXPRESSION.finditer(text):
        add(text[position : match.start()])
        position = match.end()
        [(context, name)] = _names(match.group())
        if context == "env":
            pieces.append({"env": name})
        elif context == "github" and name in _RUNNER_SIDE:
            pieces.append({"github": name})
        else:
            add(render(_look_up(matrix if context == "matrix" else github, name)))
    add(text[position:])
    if not pieces:
        return ""
    return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], str) else pieces
