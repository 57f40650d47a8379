from __future__ import annotations

import msgspec
import pytest

from runherd.api.actions import EphemeralRunner
from runherd.api.templates import (
    NO_TEMPLATE,
    TemplatePodSpec,
    decode_pod_spec,
    decode_template,
    has_container_hook,
    share_template,
    work_folder,
)

HOOKED = b'{"containers":[{"name":"runner","workingDir":"/w","env":[{"name":"ACTIONS_RUNNER_CONTAINER_HOOKS"}]}]}'


def message(name: bytes, pod_spec: bytes) -> bytes:
    return b'{"metadata":{"name":"%s"},"spec":{"githubConfigUrl":"u","spec":%s}}' % (name, pod_spec)


def test_runners_of_one_set_hold_one_template() -> None:
    first = msgspec.json.decode(message(b"first", HOOKED), type=EphemeralRunner)
    second = msgspec.json.decode(message(b"second", HOOKED), type=EphemeralRunner)
    other = msgspec.json.decode(message(b"other", b'{"containers":[]}'), type=EphemeralRunner)
    assert first.spec.spec is second.spec.spec
    assert first.spec == second.spec
    assert other.spec.spec is not first.spec.spec
    assert other.spec != first.spec


def test_a_template_is_no_view_into_its_message() -> None:
    received = bytearray(message(b"a", HOOKED))
    runner = msgspec.json.decode(received, type=EphemeralRunner)
    received[:] = b" " * len(received)
    assert bytes(runner.spec.spec) == HOOKED


@pytest.mark.parametrize("empty", [b"", b"null"])
def test_no_template(empty: bytes) -> None:
    assert share_template(msgspec.Raw(empty)) is NO_TEMPLATE
    assert not NO_TEMPLATE
    assert decode_pod_spec(NO_TEMPLATE) == TemplatePodSpec()
    assert decode_template(NO_TEMPLATE) == {}
    assert work_folder(NO_TEMPLATE) == ""
    assert not has_container_hook(NO_TEMPLATE)


def test_absent_and_null_templates_are_left_out_when_written() -> None:
    for pod_spec in (b"", b',"spec":null'):
        runner = msgspec.json.decode(b'{"spec":{"githubConfigUrl":"u"%s}}' % pod_spec, type=EphemeralRunner)
        assert runner.spec.spec is NO_TEMPLATE
        assert runner.spec.metadata is NO_TEMPLATE
        assert set(msgspec.to_builtins(runner.spec)) == {"githubConfigUrl", "githubConfigSecret", "runnerScaleSetId"}


def test_a_template_is_decoded_once_per_content() -> None:
    raw, equal = msgspec.Raw(HOOKED), msgspec.Raw(bytearray(HOOKED))
    assert decode_pod_spec(raw) is decode_pod_spec(equal)
    assert decode_template(raw) is decode_template(equal)
    assert decode_template(raw) == msgspec.json.decode(HOOKED)


@pytest.mark.parametrize(
    ("pod_spec", "folder", "hook"),
    [
        (HOOKED, "/w", True),
        (b'{"containers":[]}', "", False),
        (b'{"containers":[{"name":"runner"}]}', "", False),
        (
            b'{"containers":[{"name":"other","workingDir":"/w","env":[{"name":"ACTIONS_RUNNER_CONTAINER_HOOKS"}]}]}',
            "",
            False,
        ),
        (b'{"containers":[{"name":"other"},{"name":"runner","workingDir":"/w","env":[{"name":"A"}]}]}', "/w", False),
        (b'{"initContainers":[{"name":"runner","workingDir":"/w"}],"containers":[]}', "", False),
        (
            b'{"containers":[{"name":"runner","env":[{"name":"ACTIONS_RUNNER_CONTAINER_HOOKS","valueFrom":{}}]}]}',
            "",
            True,
        ),
    ],
)
def test_what_is_read_of_the_runner_container(pod_spec: bytes, folder: str, hook: bool) -> None:
    raw = msgspec.Raw(pod_spec)
    assert work_folder(raw) == folder
    assert has_container_hook(raw) is hook


def test_what_is_no_pod_spec_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_pod_spec(msgspec.Raw(b'{"containers":{}}'))
