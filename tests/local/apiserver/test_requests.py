"""What a request asks for that can't be: refused in words, never a failure of the server."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.store import Store
from runherd.wire.clock import SystemClock
from runherd.wire.in_process import InProcessTransport
from tests.conformance.api import JSON_PATCH, STRATEGIC_PATCH, Api, pod

_BEYOND = 2**63
_LARGEST = 2**63 - 1


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    server = ApiServer(Store(), random=Random(0), clock=SystemClock())
    await server.start()
    transport = InProcessTransport(server.handle)
    yield Api(transport, "http://embedded", "default")
    await transport.close()
    await server.close()


@pytest.mark.parametrize(
    "text", [str(_BEYOND), str(-_BEYOND - 1), "9" * 5000, "1_0", " 1", "1 ", "٣", "0x1", "+", "1.0"]
)
async def test_integers_of_queries_are_read_as_go_reads_them(api: Api, text: str) -> None:
    for query in ({"limit": text}, {"watch": 1, "timeoutSeconds": text}):
        assert (await api.call("GET", api.core("pods"), query=query)).status == 400, query
    await api.create(api.core("pods"), pod("a"))
    answer = await api.call("DELETE", api.core("pods", "a"), query={"gracePeriodSeconds": text})
    assert answer.status == 400


@pytest.mark.parametrize("text", [str(_LARGEST), str(-_LARGEST - 1), "+1", "-1", "007"])
async def test_integers_that_go_reads_are_accepted(api: Api, text: str) -> None:
    assert (await api.call("GET", api.core("pods"), query={"limit": text})).status == 200


def _long_lived(seconds: int) -> dict[str, Any]:
    body = pod("a")
    body["spec"] |= {"nodeName": "n", "terminationGracePeriodSeconds": seconds}
    return body


@pytest.mark.parametrize("seconds", [_BEYOND, 2**70, -_BEYOND - 1])
async def test_a_number_that_its_field_can_not_hold_is_refused(api: Api, seconds: int) -> None:
    answer = await api.call("POST", api.core("pods"), _long_lived(seconds))
    assert (answer.status, "of type int64" in answer.message) == (400, True)
    body = pod("a")
    body["spec"]["priority"] = 2**31
    answer = await api.call("POST", api.core("pods"), body)
    assert (answer.status, "of type int32" in answer.message) == (400, True)
    await api.create(api.core("pods"), pod("a"))
    answer = await api.call("DELETE", api.core("pods", "a"), {"gracePeriodSeconds": seconds})
    assert answer.status == 400


async def test_a_grace_period_ends_with_the_calendar(api: Api) -> None:
    await api.create(api.core("pods"), _long_lived(_LARGEST))
    deleted = await api.delete(api.core("pods", "a"))
    meta = deleted["metadata"]
    assert meta["deletionTimestamp"].startswith("9999-12-31T")
    assert meta["deletionGracePeriodSeconds"] == _LARGEST
    answer = await api.call("DELETE", api.core("pods", "a"), {"gracePeriodSeconds": 5})
    assert answer.status == 200
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] <= 5


async def test_a_grace_period_that_is_asked_for_ends_with_the_calendar(api: Api) -> None:
    for asked in (_LARGEST, -_LARGEST):
        await api.create(api.core("pods"), _long_lived(30))
        answer = await api.call("DELETE", api.core("pods", "a"), {"gracePeriodSeconds": asked})
        assert answer.status == 200
        await api.call("DELETE", api.core("pods", "a"), {"gracePeriodSeconds": 0})


@pytest.mark.parametrize(
    ("token", "status"),
    [
        ({"rv": 10**6, "start": "x"}, 504),
        ({"rv": _BEYOND, "start": "x"}, 400),
        ({"rv": 2**70, "start": "x"}, 400),
        ({"rv": -2, "start": "x"}, 400),
        ({"rv": 0, "start": "x"}, 400),
        ({"rv": "1", "start": "x"}, 400),
        ({"rv": 1.5, "start": "x"}, 400),
        ({"rv": True, "start": "x"}, 400),
        ({"rv": -1, "start": ""}, 200),
    ],
)
async def test_continue_tokens_name_a_version_that_there_was(api: Api, token: object, status: int) -> None:
    text = base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")
    answer = await api.call("GET", api.core("configmaps"), query={"limit": 1, "continue": text})
    assert answer.status == status


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        ([{"op": "test", "path": "/data/k", "value": "sent-secret"}], 'operation 0 (test "/data/k")'),
        (
            [{"op": "add", "path": "/data/n", "value": "x"}, {"op": "remove", "path": "/data/k/x"}],
            "operation 1 (remove",
        ),
        ([{"op": "replace", "path": "/data/none", "value": "sent-secret"}], 'operation 0 (replace "/data/none")'),
        ([{"op": "add", "path": "/data/k/x/y", "value": "sent-secret"}], "operation 0 (add"),
        ([{"op": "move", "from": "/data/none", "path": "/data/x"}], "operation 0 (move"),
        ([{"op": "sent-secret", "path": "/data"}], "operation 0"),
        ([{"op": ["sent-secret"], "path": {"sent-secret": 1}}], "operation 0"),
        (["sent-secret"], "operation 0"),
        ([{"op": "add", "path": "/data", "valve": "sent-secret"}], "operation 0 (add"),
    ],
)
async def test_the_error_of_a_json_patch_shows_nothing_of_the_object(api: Api, operations: Any, told: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "a2VwdC1zZWNyZXQ="}}
    await api.create(api.core("secrets"), body)
    answer = await api.call("PATCH", api.core("secrets", "a"), operations, content_type=JSON_PATCH)
    assert answer.status == 422
    assert told in answer.message
    for shown in (b"a2VwdC1zZWNyZXQ", b"sent-secret", b"resourceVersion"):
        assert shown not in answer.body


@pytest.mark.parametrize("query", [{}, {"follow": "true"}])
async def test_without_a_kubelet_logs_are_not_implemented(api: Api, query: dict[str, str]) -> None:
    """A 503 would have kubectl ask again for ever."""
    await api.create(api.core("pods"), pod("a"))
    answer = await api.call("GET", api.core("pods", "a", "log"), query=query)
    assert (answer.status, answer.reason) == (501, "NotImplemented")
    assert "no kubelet is connected" in answer.message


async def test_the_error_of_a_strategic_patch_shows_nothing_of_it(api: Api) -> None:
    await api.create(api.core("pods"), pod("a"))
    patch = {"spec": {"containers": [{"env": [{"value": "sent-secret"}]}]}}
    answer = await api.call("PATCH", api.core("pods", "a"), patch, content_type=STRATEGIC_PATCH)
    assert (answer.status, b"sent-secret" in answer.body) == (400, False)
