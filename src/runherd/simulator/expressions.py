"""The expressions that workflow files may use here: ``${{ matrix.x }}``, ``${{ env.x }}``, ``${{ github.x }}``.

Values of ``matrix`` and ``github`` are filled in when a run starts. Values of ``env`` are known only when the step
runs, since earlier steps can set them; so what is left is a :data:`Text` that the runner program completes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = ["GITHUB_NAMES", "Text", "check", "evaluate", "matrix_value", "names_matrix", "render"]

#: A string, or pieces of one: strings, and objects ``{"env": name}`` or ``{"github": name}`` for the runner to fill in.
Text = str | list[str | dict[str, str]]

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_NAME = re.compile(r"\s*(matrix|env|github)((?:\.[A-Za-z_][A-Za-z0-9_-]*)+)\s*", re.IGNORECASE)

#: In characters; GitHub bounds what its expressions give, too.
_MAX_LENGTH = 2**17

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
        context, name = match.group(1).lower(), match.group(2)[1:]
        # Environment variables are the only names in which case counts.
        found.append((context, name if context == "env" else name.lower()))
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
        found = next((value for name, value in found.items() if str(name).lower() == part), None)
    return found


def names_matrix(text: str) -> bool:
    """Whether an expression in ``text``, which is well-formed, names a value of ``matrix``."""
    return any(context == "matrix" for context, _ in _names(text))


def matrix_value(text: str, matrix: Mapping[str, object]) -> object:
    """The value itself, where ``text`` is one expression that names a value of ``matrix``; else ``None``."""
    expression = _EXPRESSION.fullmatch(text.strip())
    if expression is None:
        return None
    [(context, name)] = _names(expression.group())
    return _look_up(matrix, name) if context == "matrix" else None


def evaluate(text: str, matrix: Mapping[str, object], github: Mapping[str, object]) -> Text:
    """``text`` with its expressions replaced; names that don't exist are empty, as in GitHub's own evaluation.

    Raises ``ValueError`` for what can't be put into text, and where the result grows beyond bounds.
    """
    pieces: list[str | dict[str, str]] = []
    length = 0

    def add(piece: str) -> None:
        nonlocal length
        length += len(piece)
        if length > _MAX_LENGTH and position:
            raise ValueError(f"a text is longer than {_MAX_LENGTH} characters, with its expressions filled in")
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
