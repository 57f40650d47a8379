"""YAML with line numbers, read as GitHub reads it: YAML 1.2, where ``on`` and ``yes`` are strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

__all__ = ["Item", "WorkflowError", "load"]

try:
    _Loader: type[yaml.SafeLoader | yaml.CSafeLoader] = yaml.CSafeLoader
except AttributeError:  # PyYAML without libyaml
    _Loader = yaml.SafeLoader

_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_DEPTH = 20


class WorkflowError(Exception):
    """A workflow file can't be used; the text is ``file:line: reason``."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path = path
        #: Counted from 1.
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Item:
    """A node of a YAML file: knows what it holds and where it stands. Every method complains with that place."""

    path: str
    node: yaml.Node
    what: str

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def error(self, reason: str) -> WorkflowError:
        return WorkflowError(self.path, self.line, reason)

    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def entries(self) -> Iterator[tuple[str, Item]]:
        """A mapping's entries. Raises for anything else, and for a key that stands there twice."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"{self.what} must be a mapping")
        seen: set[str] = set()
        for key_node, value_node in self.node.value:
            key = Item(self.path, key_node, f"a key of {self.what}").text()
            if key in seen:
                raise Item(self.path, key_node, key).error(f"{key!r} stands in {self.what} twice")
            seen.add(key)
            yield key, Item(self.path, value_node, f"{self.what}.{key}" if self.what else key)

    def items(self) -> list[Item]:
        """A list's items. Raises for anything else."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"{self.what} must be a list")
        return [Item(self.path, node, f"{self.what}[{index}]") for index, node in enumerate(self.node.value)]

    def text(self) -> str:
        """A scalar as it is written. Raises for lists and mappings."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.error(f"{self.what} must be a plain value")
        return str(self.node.value)

    def value(self, depth: int = 0) -> object:
        """Whatever it is, as Python values."""
        if depth > _MAX_DEPTH:
            raise self.error(f"{self.what} is nested too deeply")
        if self.is_mapping():
            return {key: item.value(depth + 1) for key, item in self.entries()}
        if self.is_list():
            return [item.value(depth + 1) for item in self.items()]
        return self._scalar()

    def _scalar(self) -> object:
        text = self.text()
        if getattr(self.node, "style", None) in ("'", '"', "|", ">"):
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text.lower() in ("true", "false") and text in (text.lower(), text.title(), text.upper()):
            return text.lower() == "true"
        if _INTEGER.fullmatch(text):
            return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
        return float(text) if _FLOAT.fullmatch(text) else text


def load(text: str, path: str) -> Item:
    """The document in ``text``; ``path`` names it in complaints. Raises :class:`WorkflowError` where it isn't YAML."""
    try:
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise WorkflowError(path, mark.line + 1 if mark else 1, f"not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise WorkflowError(path, 1, f"not valid YAML: {error}") from None
    if len(nodes) != 1 or nodes[0] is None:
        raise WorkflowError(path, 1, "a workflow file must hold one YAML document")
    return Item(path, nodes[0], "")
