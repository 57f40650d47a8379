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
_MAX_DEPTH = 50
_MAX_SIZE = 2**20


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

    @property
    def name(self) -> str:
        """What to call it in a complaint."""
        return self.what or "the workflow"

    def error(self, reason: str) -> WorkflowError:
        return WorkflowError(self.path, self.line, reason)

    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def entries(self) -> Iterator[tuple[str, Item]]:
        """A mapping's entries. Raises for anything else, and for a key that stands there twice."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self._wrong_shape("a mapping")
        seen: set[str] = set()
        for key_node, value_node in self.node.value:
            key = Item(self.path, key_node, f"a key of {self.name}").text()
            if key in seen:
                raise Item(self.path, key_node, key).error(f"{key!r} stands in {self.name} twice")
            seen.add(key)
            yield key, Item(self.path, value_node, f"{self.what}.{key}" if self.what else key)

    def items(self) -> list[Item]:
        """A list's items. Raises for anything else."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self._wrong_shape("a list")
        return [Item(self.path, node, f"{self.what}[{index}]") for index, node in enumerate(self.node.value)]

    def text(self) -> str:
        """A scalar as it is written. Raises for lists and mappings."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.error(f"{self.name} must be a plain value")
        text = str(self.node.value)
        if "\0" in text:
            raise self.error(f"{self.name} has a NUL character in it")
        return text

    def value(self) -> object:
        """Whatever it is, as Python values."""
        if self.is_mapping():
            return {key: item.value() for key, item in self.entries()}
        if self.is_list():
            return [item.value() for item in self.items()]
        return self._scalar()

    def _wrong_shape(self, wanted: str) -> WorkflowError:
        if isinstance(self.node, yaml.ScalarNode) and "${{" in self.node.value:
            return self.error(f"{self.name}: an expression that gives {wanted} is not supported")
        return self.error(f"{self.name} must be {wanted}")

    def _scalar(self) -> object:
        text = self.text()
        if getattr(self.node, "style", None) in ("'", '"', "|", ">"):
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text.lower() in ("true", "false") and text in (text.lower(), text.title(), text.upper()):
            return text.lower() == "true"
        if _INTEGER.fullmatch(text):
            try:
                return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            except ValueError:  # Python reads a few thousand digits, no more
                raise self.error(f"{self.name} is too long for a number") from None
        return float(text) if _FLOAT.fullmatch(text) else text


def load(text: str | bytes, path: str) -> Item:
    """The document in ``text`` (bytes: UTF-8); ``path`` names it in complaints.

    Raises :class:`WorkflowError` where it isn't YAML, and for what would grow beyond bounds when it is read.
    """
    text = _readable(text, path)
    try:
        _check_size(text, path)
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise WorkflowError(path, mark.line + 1 if mark else 1, f"not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise WorkflowError(path, 1, f"not valid YAML: {error}") from None
    if len(nodes) != 1 or nodes[0] is None:
        raise WorkflowError(path, 1, "a workflow file must hold one YAML document")
    return Item(path, nodes[0], "")


def _readable(text: str | bytes, path: str) -> str:
    """``text`` as characters that YAML allows."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise WorkflowError(path, line, f"not UTF-8: byte 0x{error.object[error.start]:02x}") from None
    odd = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if odd is not None:
        line = text.count("\n", 0, odd.start()) + 1
        raise WorkflowError(path, line, f"character U+{ord(odd.group()):04X} may not stand in YAML")
    return text


def _check_size(text: str, path: str) -> None:
    """Refuse deep nesting, tags, and aliases that make a little text large, while nothing is built from it yet.

    The size of a part is its characters plus one for each node; an alias counts as much as what it stands for.
    """
    anchors: dict[str, int] = {}
    # The open collections: the name of the anchor, and the size of all that came before.
    above: list[tuple[str | None, int]] = []
    size = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            name, before = above.pop()
            if name:
                anchors[name] = size - before
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        line = event.start_mark.line + 1 if event.start_mark else 1
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise WorkflowError(path, line, f"YAML tags are not supported: {tag}")
        if isinstance(event, yaml.AliasEvent):
            if any(name == event.anchor for name, _ in above):
                raise WorkflowError(path, line, f"alias *{event.anchor} stands inside of what it names")
            size += anchors.get(event.anchor or "", 0)
        elif isinstance(event, yaml.ScalarEvent):
            size += 1 + len(event.value)
            if event.anchor:
                anchors[event.anchor] = 1 + len(event.value)
        else:
            above.append((event.anchor, size))
            size += 1
            if len(above) > _MAX_DEPTH:
                raise WorkflowError(path, line, f"nested more than {_MAX_DEPTH} levels deep")
        if size > _MAX_SIZE:
            reason = f"the workflow is too large: more than {_MAX_SIZE} characters, with its aliases filled in"
            raise WorkflowError(path, line, reason)
