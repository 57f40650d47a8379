"""The kubeconfig file format, and how several files become one configuration (client-go's rules).

The first file to set a value or to name an entry wins; entries of the same name are not mixed. Relative paths count
from the folder of the file that they stand in.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from runherd.kube.errors import ConfigError

__all__ = ["Cluster", "Context", "Entry", "ExecSpec", "Kubeconfig", "User", "read_kubeconfig"]


class _Section(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"  # some fields are secret


class NamedExtension(_Section, frozen=True, kw_only=True):
    """Data for others; the one named ``client.authentication.k8s.io/exec`` is for plugins."""

    name: str = ""
    extension: Any = None


class Cluster(_Section, frozen=True, kw_only=True):
    """Where an API server is, and how we know that it is the right one."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[NamedExtension] = []


class Variable(_Section, frozen=True, kw_only=True):
    """An environment variable for a plugin."""

    name: str = ""
    value: str = ""


class ExecSpec(_Section, frozen=True, kw_only=True, rename="camel"):
    """A plugin that provides credentials."""

    command: str = ""
    args: list[str] = []
    env: list[Variable] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class User(_Section, frozen=True, kw_only=True):
    """How we show who we are."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    as_: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    username: str = ""
    password: str = ""
    auth_provider: dict[str, Any] | None = None
    exec: ExecSpec | None = None


class Context(_Section, frozen=True, kw_only=True):
    """A cluster, a user of it, and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Named(_Section, frozen=True, kw_only=True):
    name: str
    cluster: Any = None
    user: Any = None
    context: Any = None


class _File(_Section, frozen=True, kw_only=True):
    clusters: list[_Named] = []
    users: list[_Named] = []
    contexts: list[_Named] = []
    current_context: str = ""


S = TypeVar("S", Cluster, User, Context)

_KINDS: dict[type[Any], str] = {Cluster: "cluster", User: "user", Context: "context"}


@dataclass(frozen=True, slots=True)
class Entry(Generic[S]):
    """An entry and where it stands."""

    file: Path
    name: str
    value: S

    def __str__(self) -> str:
        return f'{self.file}: {_KINDS[type(self.value)]} "{self.name}"'

    def error(self, text: str) -> ConfigError:
        """An error about this entry."""
        return ConfigError(f"{self}: {text}")

    def path(self, value: str) -> Path:
        """``value``, a path in this entry."""
        return self.file.parent / value

    def contents(self, field: str, path: str, data: str) -> bytes | None:
        """What ``field`` holds: base64 in ``field``-data, or a file. ``None`` when neither is given."""
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError):
                raise self.error(f"{field}-data is not base64") from None
        if not path:
            return None
        try:
            return self.path(path).read_bytes()
        except OSError as error:
            raise self.error(f"{field}: can't read {self.path(path)}: {error.strerror}") from None


class Kubeconfig:
    """Several files as one. Entries are looked at when they are asked for, so that a bad one spoils no other."""

    def __init__(self, files: Sequence[tuple[Path, _File]]) -> None:
        self._files = files
        self.current_context = next((file.current_context for _, file in files if file.current_context), "")

    @property
    def context_names(self) -> list[str]:
        """The contexts there are, sorted."""
        return sorted({named.name for _, file in self._files for named in file.contexts})

    def context(self, name: str) -> Entry[Context] | None:
        """The context ``name``. Raises :class:`~runherd.kube.errors.ConfigError` when it can't be read."""
        return self._find(Context, name)

    def cluster(self, name: str) -> Entry[Cluster] | None:
        """The cluster ``name``; errors as above."""
        return self._find(Cluster, name)

    def user(self, name: str) -> Entry[User] | None:
        """The user ``name``; errors as above."""
        return self._find(User, name)

    def _find(self, type_: type[S], name: str) -> Entry[S] | None:
        kind = _KINDS[type_]
        for path, file in self._files:
            for named in getattr(file, f"{kind}s"):
                if named.name == name:
                    content = getattr(named, kind)
                    try:
                        value = msgspec.convert({} if content is None else content, type_)
                    except msgspec.ValidationError as error:
                        raise ConfigError(f'{path}: {kind} "{name}": {error}') from None
                    return Entry(path, name, value)
        return None


def read_kubeconfig(paths: Sequence[Path]) -> Kubeconfig:
    """Read the files ``paths``, of which those that don't exist are passed over.

    Raises :class:`~runherd.kube.errors.ConfigError`, which names the file, for one that can't be read or is none.
    """
    files = []
    for path in paths:
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
        files.append((path, _parse(path, text)))
    return Kubeconfig(files)


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: what looks like a date is text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # overrides PyYAML's own class attribute
        start: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
        for start, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


def _parse(path: Path, text: bytes) -> _File:
    try:
        content = yaml.load(text, _Loader)  # noqa: S506  # _Loader is a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The error's own text may quote a line, which may be secret.
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1})"
        raise ConfigError(f"{path}: is not YAML{where}: {getattr(error, 'problem', None) or 'not UTF-8'}") from None
    try:
        file = msgspec.convert(_without_nulls(content) or {}, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: is no kubeconfig: {error}") from None
    for kind, entries in (("cluster", file.clusters), ("user", file.users), ("context", file.contexts)):
        names = [entry.name for entry in entries]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f'{path}: there is more than one {kind} "{name}"')
    return file


def _without_nulls(value: Any) -> Any:
    """``value`` without fields that are null: in Go, null leaves a field as it is."""
    if isinstance(value, dict):
        return {name: _without_nulls(field) for name, field in value.items() if field is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
