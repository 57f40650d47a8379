from __future__ import annotations

from collections.abc import Iterable

import pytest
from structlog.testing import capture_logs

from runherd.api.core import NODES, PODS, Pod
from runherd.api.resource import ApiObject, Resource
from runherd.runtime.event_handler import EnqueueRequests, request_for_object, request_for_owner
from runherd.runtime.metrics import Metrics
from runherd.runtime.predicate import Predicate
from runherd.runtime.rate_limiter import ItemExponentialFailureRateLimiter
from runherd.runtime.request import Request
from runherd.runtime.work_queue import WorkQueue
from tests.runtime.objects import owned_by, pod
from tests.support.virtual_time import in_virtual_time

RUNNERS: Resource[Pod] = Resource(
    "actions.github.com", "v1alpha1", "ephemeralrunners", "EphemeralRunner", namespaced=True, type=Pod
)


class Queue(WorkQueue):
    def __init__(self) -> None:
        super().__init__("test", ItemExponentialFailureRateLimiter(), Metrics())

    async def take(self) -> list[str]:
        taken = []
        while len(self):
            request = await self.get()
            self.done(request)
            taken.append(str(request))
        return taken


@in_virtual_time
async def test_events_enqueue_what_the_map_function_says() -> None:
    queue = Queue()
    handler = EnqueueRequests(queue, request_for_object)
    handler.on_add(pod("a", 1))
    handler.on_update(pod("b", 1), pod("b", 2))
    handler.on_delete(pod("c", 3, namespace="other"))
    assert await queue.take() == ["default/a", "default/b", "other/c"]


@in_virtual_time
async def test_a_child_that_changes_hands_is_noticed_by_both_owners() -> None:
    queue = Queue()
    handler = EnqueueRequests(queue, request_for_owner(RUNNERS))
    handler.on_update(pod("a", 1, owner=owned_by("old")), pod("a", 2, owner=owned_by("new")))
    assert await queue.take() == ["default/old", "default/new"]


@pytest.mark.parametrize(
    ("kind", "api_version", "matches"),
    [
        ("EphemeralRunner", "actions.github.com/v1alpha1", True),
        ("EphemeralRunner", "actions.github.com/v2", True),  # the version is not compared
        ("EphemeralRunner", "example.com/v1alpha1", False),
        ("EphemeralRunnerSet", "actions.github.com/v1alpha1", False),
        ("EphemeralRunner", "v1", False),
    ],
)
def test_owners_match_by_group_and_kind(kind: str, api_version: str, matches: bool) -> None:
    """docs/spec/controllers.md 1.4"""
    child = pod("a", 1, owner=owned_by("er", kind, api_version))
    assert list(request_for_owner(RUNNERS)(child)) == ([Request("default", "er")] if matches else [])


def test_owners_of_the_core_group_and_without_namespace() -> None:
    assert list(request_for_owner(PODS)(pod("a", 1, owner=owned_by("p", "Pod", "v1")))) == [Request("default", "p")]
    assert list(request_for_owner(NODES)(pod("a", 1, owner=owned_by("n", "Node", "v1")))) == [Request("", "n")]
    assert list(request_for_owner(PODS)(pod("a", 1))) == []


@in_virtual_time
async def test_an_event_must_pass_all_predicates() -> None:
    queue = Queue()
    running: Predicate[Pod] = Predicate(
        create=lambda object_: object_.status.phase == "Running",
        update=lambda old, new: new.status.phase == "Running",
        delete=lambda object_: object_.status.phase == "Running",
    )
    not_b: Predicate[ApiObject] = Predicate(create=lambda object_: object_.metadata.name != "b")
    handler = EnqueueRequests(queue, request_for_object, (running, not_b))
    for name in "abc":
        handler.on_add(pod(name, 1, phase="Running"))
        handler.on_add(pod(f"pending-{name}", 1))
    handler.on_update(pod("d", 1, phase="Running"), pod("d", 2))
    handler.on_update(pod("e", 1), pod("e", 2, phase="Running"))
    handler.on_delete(pod("f", 1))
    handler.on_delete(pod("g", 1, phase="Running"))
    assert await queue.take() == ["default/a", "default/c", "default/e", "default/g"]


@in_virtual_time
async def test_a_predicate_that_raises_lets_the_event_pass_and_is_logged() -> None:
    def fail(*_: ApiObject) -> bool:
        raise KeyError("bug")

    queue = Queue()
    handler = EnqueueRequests(queue, request_for_object, (Predicate(fail, fail, fail),))
    with capture_logs() as logs:
        handler.on_add(pod("a", 1))
        handler.on_update(pod("b", 1), pod("b", 2))
        handler.on_delete(pod("c", 1))
    assert await queue.take() == ["default/a", "default/b", "default/c"]
    assert [(entry["log_level"], entry["name"]) for entry in logs] == [("error", name) for name in "abc"]


@in_virtual_time
async def test_a_map_function_that_raises_is_logged_and_harms_nobody_else() -> None:
    def map_function(object_: Pod) -> Iterable[Request]:
        if object_.metadata.name == "bad":
            raise ValueError("bug")
        return (Request.of(object_),)

    queue = Queue()
    handler = EnqueueRequests(queue, map_function)
    with capture_logs() as logs:
        handler.on_add(pod("bad", 1))
        handler.on_add(pod("good", 1))
    assert await queue.take() == ["default/good"]
    assert [entry["name"] for entry in logs] == ["bad"]
