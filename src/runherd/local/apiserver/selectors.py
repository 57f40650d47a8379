"""Label and field selectors: the text of a query parameter into a test on an object's labels and fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from runherd.local.apiserver.errors import bad_request

__all__ = ["Predicate", "parse_field_selector", "parse_label_selector"]

#: Tells whether labels (or fields), by name, are selected.
Predicate = Callable[[Mapping[str, str]], bool]

_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<absent_key>{_KEY})"
    rf"|(?P<set_key>{_KEY})\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|(?P<key>{_KEY})\s*(?:(?P<operator>==|=|!=|<|>)\s*(?P<value>{_VALUE}))?)\s*(?:,|$)"
)
_ONE_VALUE = re.compile(_VALUE)


def parse_label_selector(text: str) -> Predicate | None:
    """The test that a ``labelSelector`` makes, or None when it selects everything. Raises a 400 for bad syntax."""
    if not text.strip():
        return None
    requirements: list[Predicate] = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: found {text[position:]!r} in the label selector {text!r}")
        requirements.append(_label_requirement(match, text))
        position = match.end()
    if text.rstrip().endswith(","):
        raise bad_request(f"unable to parse requirement: the label selector {text!r} ends with a comma")
    return _all_of(requirements)


def _label_requirement(match: re.Match[str], text: str) -> Predicate:
    if match["absent"]:
        absent = match["absent_key"]
        return lambda labels: absent not in labels
    if match["set"]:
        key = match["set_key"]
        values = frozenset(value.strip() for value in match["values"].split(","))
        if any(_ONE_VALUE.fullmatch(value) is None for value in values):
            raise bad_request(
                f"unable to parse requirement: {match['values']!r} in {text!r} is no list of label values"
            )
        if match["set"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    key, operator, value = match["key"], match["operator"], match["value"]
    match operator:
        case None:
            return lambda labels: key in labels
        case "=" | "==":
            return lambda labels: labels.get(key) == value
        case "!=":
            return lambda labels: labels.get(key) != value
    return _comparison(key, operator, value, text)


def _comparison(key: str, operator: str, value: str, text: str) -> Predicate:
    try:
        bound = int(value)
    except ValueError:
        raise bad_request(f"for 'Gt', 'Lt' operators, the value must be an integer (label selector {text!r})") from None

    def compare(labels: Mapping[str, str]) -> bool:
        try:
            number = int(labels[key])
        except (KeyError, ValueError):
            return False
        return number > bound if operator == ">" else number < bound

    return compare


def parse_field_selector(text: str, supported: frozenset[str]) -> Predicate | None:
    """The test that a ``fieldSelector`` makes, or None when it selects everything.

    Raises a 400 for bad syntax and for a field that the kind (``supported``) can't be selected by.
    """
    requirements: list[Predicate] = []
    for term in _split(text, ","):
        if not term.strip():
            continue
        requirement, field = _field_requirement(term)
        if field not in supported:
            raise bad_request(f"field label not supported: {field}")
        requirements.append(requirement)
    return _all_of(requirements) if requirements else None


def _field_requirement(term: str) -> tuple[Predicate, str]:
    match = re.match(r"\s*([^=!\\]+?)\s*(!=|==|=)(.*)$", term, re.DOTALL)
    if match is None:
        raise bad_request(f"invalid selector: {term!r}; can't understand {term!r}")
    field, operator, value = match[1], match[2], re.sub(r"\\([\\,=])", r"\1", match[3])
    if operator == "!=":
        return (lambda fields: fields.get(field, "") != value), field
    return (lambda fields: fields.get(field, "") == value), field


def _split(text: str, separator: str) -> list[str]:
    """``text`` in its parts; a separator behind a backslash doesn't count."""
    return re.split(rf"(?<!\\){re.escape(separator)}", text) if text else []


def _all_of(requirements: list[Predicate]) -> Predicate:
    if len(requirements) == 1:
        return requirements[0]
    return lambda values: all(requirement(values) for requirement in requirements)
