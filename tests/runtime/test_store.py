from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from runherd.api.core import Pod, PodStatus
from runherd.runtime.index import label_index
from runherd.runtime.request import Request
from runherd.runtime.store import Store
from tests.runtime.objects import Recorder, Replica, pod

A = Request("default", "a")
B = Request("default", "b")


@dataclass
class Watched:
    store: Store[Pod] = field(default_factory=Store)
    recorder: Recorder = field(default_factory=Recorder)

    def __post_init__(self) -> None:
        self.store.add_handler(self.recorder)

    def version(self, key: Request = A) -> int | None:
        known = self.store.get(key)
        return None if known is None else int(known.metadata.resource_version)


def listed(*pods: Pod, at: int) -> Watched:
    watched = Watched()
    watched.store.replace(pods, str(at), 0)
    watched.recorder.take()
    return watched


def test_the_watch_adds_updates_and_deletes() -> None:
    watched = Watched()
    store = watched.store
    store.observe(pod("a", 1))
    store.observe(pod("b", 2))
    store.observe(pod("a", 3, phase="Running"))
    assert len(store) == 2
    known = store.get(A)
    assert known is not None
    assert known.status.phase == "Running"
    store.observe_deleted(pod("a", 4, phase="Failed"))
    assert store.get(A) is None
    assert [object_.metadata.name for object_ in store.objects()] == ["b"]
    assert watched.recorder.events == ["add a@1", "add b@2", "update a@1->3", "delete a@4"]
    assert store.position == store.latest == 4


def test_bookmarks_move_the_position() -> None:
    watched = listed(at=5)
    watched.store.observe_version("9")
    assert watched.store.position == 9
    assert watched.recorder.events == []


def test_a_list_brings_what_was_missed_deletions_too() -> None:
    watched = listed(pod("a", 1), pod("b", 2), pod("c", 3), at=4)
    watched.store.replace([pod("b", 2), pod("c", 6), pod("d", 7)], "8", watched.store.latest)
    assert sorted(watched.recorder.events) == ["add d@7", "delete a@1", "update c@3->6"]
    assert watched.store.position == 8


def test_another_object_of_the_same_name_is_a_deletion_and_an_addition() -> None:
    watched = listed(pod("a", 1, "first"), at=1)
    watched.store.replace([pod("a", 5, "second")], "6", 1)
    assert watched.recorder.take() == ["delete a@1", "add a@5"]
    # also when the watch did not bring the deletion
    watched.store.observe(pod("a", 9, "third"))
    assert watched.recorder.take() == ["delete a@5", "add a@9"]


def test_a_new_handler_is_told_of_what_is_there() -> None:
    watched = listed(pod("a", 1), pod("b", 2), at=2)
    late = Recorder()
    watched.store.add_handler(late)
    assert late.take() == ["add a@1", "add b@2"]
    watched.store.observe(pod("a", 3))
    assert late.events == watched.recorder.events == ["update a@1->3"]


# --- Read your writes ------------------------------------------------------------------------------------------------


def test_what_we_wrote_is_there_at_once_and_told_once() -> None:
    watched = listed(pod("a", 1), at=1)
    watched.store.wrote(pod("a", 4))
    watched.store.wrote(pod("b", 5))
    assert watched.recorder.take() == ["update a@1->4", "add b@5"]
    watched.store.observe(pod("a", 4))
    watched.store.observe(pod("b", 5))
    assert watched.recorder.events == []


def test_older_events_do_not_roll_a_write_of_ours_back() -> None:
    watched = listed(pod("a", 1), at=1)
    watched.store.wrote(pod("a", 4))
    watched.store.observe(pod("a", 2))
    watched.store.observe(pod("a", 3))
    assert watched.version() == 4
    watched.store.observe(pod("a", 5))
    assert watched.recorder.events == ["update a@1->4", "update a@4->5"]


def test_answers_to_our_writes_may_come_in_any_order() -> None:
    watched = listed(pod("a", 1), at=1)
    watched.store.wrote(pod("a", 4))
    watched.store.wrote(pod("a", 3))
    assert watched.version() == 4


def test_an_answer_that_comes_after_the_watch_changes_nothing() -> None:
    watched = listed(pod("a", 1), at=1)
    watched.store.observe(pod("a", 4))
    watched.recorder.take()
    watched.store.wrote(pod("a", 3))
    watched.store.wrote(pod("a", 4))
    assert watched.recorder.events == []


def test_a_list_older_than_what_we_wrote_neither_drops_it_nor_rolls_it_back() -> None:
    watched = listed(pod("a", 1), at=1)
    at_least = watched.store.latest
    watched.store.wrote(pod("a", 4))
    watched.store.wrote(pod("b", 5))
    watched.store.replace([pod("a", 2)], "3", at_least)
    assert watched.version(A) == 4
    assert watched.version(B) == 5
    assert watched.store.position == 3


def test_an_answer_to_a_create_does_not_revive_what_was_deleted_meanwhile() -> None:
    watched = listed(at=1)
    watched.store.observe(pod("a", 2))
    watched.store.observe_deleted(pod("a", 3))
    watched.store.wrote(pod("a", 2))
    assert watched.store.get(A) is None


def test_an_answer_does_not_revive_what_was_created_and_deleted_before_a_list() -> None:
    watched = listed(at=1)
    watched.store.replace([], "9", 1)
    watched.store.wrote(pod("a", 5))
    assert watched.store.get(A) is None


def test_events_of_an_earlier_object_do_not_touch_the_one_that_we_created() -> None:
    watched = listed(pod("a", 1, "first"), at=1)
    watched.store.wrote(pod("a", 9, "second"))
    assert watched.recorder.take() == ["delete a@1", "add a@9"]
    watched.store.observe(pod("a", 3, "first"))
    watched.store.observe_deleted(pod("a", 5, "first"))
    watched.store.observe(pod("a", 9, "second"))
    assert watched.version() == 9
    assert watched.recorder.events == []


def test_what_we_deleted_is_gone_at_once_whatever_the_watch_still_brings() -> None:
    watched = listed(pod("a", 1), at=1)
    with watched.store.deleting(A) as acknowledged:
        acknowledged("a")
    assert watched.recorder.take() == ["delete a@1"]
    watched.store.observe(pod("a", 2))
    assert watched.store.get(A) is None
    assert watched.store.unconfirmed == 1
    watched.store.observe_deleted(pod("a", 3))
    assert watched.store.unconfirmed == 0
    watched.store.observe(pod("a", 4, "next"))
    assert watched.recorder.events == ["add a@4"]


def test_the_next_object_of_a_deleted_name_is_seen_at_once_if_we_create_it() -> None:
    watched = listed(pod("a", 1, "first"), at=1)
    with watched.store.deleting(A) as acknowledged:
        acknowledged("first")
    watched.store.wrote(pod("a", 5, "second"))
    assert watched.version() == 5
    watched.store.observe(pod("a", 2, "first"))
    watched.store.observe_deleted(pod("a", 3, "first"))
    watched.store.observe(pod("a", 5, "second"))
    watched.store.observe(pod("a", 6, "second"))
    assert watched.recorder.events == ["delete a@1", "add a@5", "update a@5->6"]


def test_a_late_answer_does_not_revive_what_we_deleted() -> None:
    watched = listed(pod("a", 1), at=1)
    with watched.store.deleting(A) as acknowledged:
        acknowledged("a")
    watched.store.wrote(pod("a", 2))
    assert watched.store.get(A) is None


def test_a_deletion_that_the_watch_brought_first_is_not_waited_for() -> None:
    watched = listed(pod("a", 1), at=1)
    with watched.store.deleting(A) as acknowledged:
        watched.store.observe_deleted(pod("a", 2))
        watched.store.observe(pod("a", 3, "next"))
        acknowledged("a")
    assert watched.store.unconfirmed == 0
    assert watched.version() == 3


def test_of_two_deletes_of_one_name_each_knows_what_it_missed() -> None:
    watched = listed(pod("a", 1), at=1)
    with watched.store.deleting(A) as first:
        watched.store.observe_deleted(pod("a", 2))
        with watched.store.deleting(A) as second:
            watched.store.observe(pod("a", 3, "next"))
            second("next")
            first("a")
        assert watched.store.get(A) is None
        assert watched.store.unconfirmed == 1
    watched.store.observe_deleted(pod("a", 4, "next"))
    assert watched.store.unconfirmed == 0


def test_a_deletion_that_a_list_brought_first_is_not_waited_for() -> None:
    watched = listed(pod("a", 1), at=1)
    with watched.store.deleting(A) as acknowledged:
        watched.store.replace([pod("a", 4, "next")], "5", 1)
        acknowledged("a")
    assert watched.store.unconfirmed == 0
    assert watched.version() == 4


def test_an_object_that_was_deleted_unseen_stays_unseen() -> None:
    watched = listed(pod("a", 1, "first"), at=1)
    with watched.store.deleting(A) as acknowledged:
        acknowledged("second")
    for version, uid, deleted in ((2, "first", False), (3, "first", True), (4, "second", False), (5, "second", True)):
        if deleted:
            watched.store.observe_deleted(pod("a", version, uid))
        else:
            watched.store.observe(pod("a", version, uid))
    assert watched.recorder.events == ["delete a@1"]
    assert watched.store.unconfirmed == 0


def test_a_delete_without_a_uid_is_of_the_object_that_is_known() -> None:
    watched = listed(pod("a", 1), at=1)
    with watched.store.deleting(A) as acknowledged:
        acknowledged("")
    with watched.store.deleting(B) as acknowledged:
        acknowledged("")
    assert watched.store.unconfirmed == 1
    watched.store.observe_deleted(pod("a", 2))
    assert watched.store.unconfirmed == 0
    watched.store.observe(pod("b", 3))
    assert watched.version(B) == 3


@pytest.mark.parametrize(
    ("list_version", "item", "expected"),
    [
        (9, None, None),  # the list shows that it is gone
        (9, pod("a", 8, "next"), 8),  # and what came after it
        (9, pod("a", 6), None),  # the list is older than the deletion
        (4, None, None),  # the list is older than the object
        (4, pod("a", 3, "earlier"), None),  # and shows an earlier one
    ],
)
def test_a_list_while_a_deletion_is_awaited(list_version: int, item: Pod | None, expected: int | None) -> None:
    watched = listed(at=1)
    at_least = watched.store.latest
    watched.store.wrote(pod("a", 5))
    with watched.store.deleting(A) as acknowledged:
        acknowledged("a")
    watched.store.replace([] if item is None else [item], str(list_version), at_least)
    assert watched.version() == expected
    still_awaited = list_version < 5 or (item is not None and item.metadata.uid == "a")
    assert watched.store.unconfirmed == still_awaited


def test_a_failed_delete_leaves_everything_as_it_was() -> None:
    watched = listed(pod("a", 1), at=1)
    with pytest.raises(ConnectionError), watched.store.deleting(A):
        raise ConnectionError
    assert watched.version() == 1
    assert watched.store.unconfirmed == 0


def test_a_server_that_went_back_in_time_is_followed_and_everything_is_added_anew() -> None:
    watched = listed(pod("a", 10), pod("b", 20), pod("c", 30), at=30)
    with watched.store.deleting(Request("default", "c")) as acknowledged:
        acknowledged("c")
    watched.recorder.take()
    at_least = watched.store.latest
    # versions are used a second time, with other content
    watched.store.replace([pod("a", 10), pod("b", 12), pod("c", 14)], "15", at_least)
    assert watched.recorder.take() == ["delete a@10", "delete b@20", "add a@10", "add b@12", "add c@14"]
    assert watched.store.position == watched.store.latest == 15
    assert watched.store.unconfirmed == 0
    watched.store.observe(pod("b", 16))
    watched.store.wrote(pod("b", 17))
    assert watched.version(B) == 17


# --- Indexes and transform -------------------------------------------------------------------------------------------


def names(watched: Watched, value: str, namespace: str = "default") -> list[str]:
    return [object_.metadata.name for object_ in watched.store.find("app", namespace, value)]


def test_an_index_follows_every_change() -> None:
    watched = listed(pod("a", 1, labels={"app": "x"}), pod("z", 2, namespace="other", labels={"app": "x"}), at=2)
    store = watched.store
    store.add_index("app", label_index("app"))
    store.observe(pod("b", 3, labels={"app": "x"}))
    store.observe(pod("c", 4))
    assert names(watched, "x") == ["a", "b"]
    assert names(watched, "x", "other") == ["z"]
    store.wrote(pod("a", 5, labels={"app": "y"}))
    assert names(watched, "x") == ["b"]
    assert names(watched, "y") == ["a"]
    store.observe(pod("b", 6, labels={"app": "x", "more": "1"}))
    (found,) = store.find("app", "default", "x")
    assert found.metadata.resource_version == "6"
    store.observe_deleted(pod("b", 7))
    store.replace([], "8", 0)
    assert names(watched, "x") == names(watched, "y") == []
    with pytest.raises(ValueError, match="'app'"):
        store.add_index("app", label_index("app"))
    with pytest.raises(KeyError):
        store.find("nothing", "default", "x")


def test_the_transform_decides_what_is_kept() -> None:
    def without_status(object_: Pod) -> Pod:
        return msgspec.structs.replace(object_, status=PodStatus())

    store = Store(without_status)
    store.observe(pod("a", 1, phase="Running"))
    store.wrote(pod("a", 2, phase="Running"))
    known = store.get(A)
    assert known is not None
    assert known.status == PodStatus()


# --- Against a model -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """A state of a key on the server, from one version to the one before the next change. ``uid=""``: no object."""

    uid: str
    start: int
    end: int | None = None


class ModelServer:
    """A server with a history; a watch that is behind; answers that take their time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.lists = seed % 3 > 0
        self.version = 0
        self.history: list[tuple[str, Pod]] = []
        self.objects: dict[Request, Pod] = {}
        self.spans: dict[Request, list[Span]] = {}
        self.store: Store[Pod] = Store()
        self.replica = Replica()
        self.store.add_handler(self.replica)
        self.cursor = 0
        #: The least version that a reconcile may see of a key.
        self.floor: dict[Request, int] = {}
        self.answers: list[Callable[[], None]] = []
        self.under_way: list[tuple[Request, str]] = []
        self.list: tuple[list[Pod], int, int, int] | None = None

    # what happens on the server

    def change(self, type_: str, key: Request, uid: str) -> Pod:
        self.version += 1
        object_ = pod(key.name, self.version, uid)
        self.history.append((type_, object_))
        spans = self.spans.setdefault(key, [Span("", 0)])
        spans[-1] = replace(spans[-1], end=self.version - 1)
        if type_ == "DELETED":
            del self.objects[key]
            spans.append(Span("", self.version))
        else:
            self.objects[key] = object_
            spans.append(Span(uid, self.version))
        return object_

    def write(self, key: Request, *, may_delete: bool = True) -> tuple[str, Pod]:
        """A random write that the server accepts."""
        current = self.objects.get(key)
        if current is None:
            return "ADDED", self.change("ADDED", key, f"uid{self.version}")
        if not may_delete or self.random.random() < 0.6:
            return "MODIFIED", self.change("MODIFIED", key, current.metadata.uid)
        return "DELETED", self.change("DELETED", key, current.metadata.uid)

    # what the store gets to know

    def own_write(self, key: Request) -> None:
        """A write of ours. Several changes of an object may be under way at once, and one deletion among them, but no
        creation: nobody makes an object before knowing what became of the last one of that name."""
        others = [type_ for other, type_ in self.under_way if other == key]
        if "ADDED" in others or "DELETED" in others or (others and key not in self.objects):
            return
        # Who deletes an object has seen it. (A list that overlaps a blind delete may show the object once more.)
        current, known = self.objects.get(key), self.store.get(key)
        seen = current is not None and known is not None and current.metadata.uid == known.metadata.uid
        delete = self.store.deleting(key)
        acknowledged = delete.__enter__()
        type_, object_ = self.write(key, may_delete=seen or not self.lists)
        self.under_way.append((key, type_))

        def answer() -> None:
            self.under_way.remove((key, type_))
            if type_ == "DELETED":
                acknowledged(object_.metadata.uid)
            else:
                self.store.wrote(object_)
            delete.__exit__(None, None, None)
            self.floor[key] = max(self.floor.get(key, 0), int(object_.metadata.resource_version))

        self.answers.append(answer)

    def answer(self) -> None:
        if self.answers:
            answer = self.answers.pop(self.random.randrange(len(self.answers)))
            answer()

    def watch_step(self) -> None:
        if self.list is None and self.cursor < len(self.history):
            type_, object_ = self.history[self.cursor]
            self.cursor += 1
            if type_ == "DELETED":
                self.store.observe_deleted(object_)
            else:
                self.store.observe(object_)

    def start_list(self) -> None:
        if self.lists and self.list is None:
            self.list = (list(self.objects.values()), self.version, self.store.latest, len(self.history))

    def finish_list(self) -> None:
        if self.list is not None:
            objects, version, at_least, self.cursor = self.list
            self.list = None
            self.store.replace(objects, str(version), at_least)

    def bookmark(self) -> None:
        if self.list is None and self.cursor == len(self.history):
            self.store.observe_version(str(self.version))

    # what must hold

    def check(self) -> None:
        assert self.replica.objects == {Request.of(object_): object_ for object_ in self.store.objects()}
        for key, spans in self.spans.items():
            known = self.store.get(key)
            floor = self.floor.get(key, 0)
            if known is not None:
                start = int(known.metadata.resource_version)
                (span,) = (span for span in spans if span.start == start)
                assert span.uid == known.metadata.uid
            else:
                # No object: the latest such span that fits.
                span = max((span for span in spans if not span.uid), key=lambda span: span.start)
            assert span.end is None or span.end >= floor, f"seed {self.seed}, {key}: {span} is older than {floor}"
            if known is not None:
                self.floor[key] = max(floor, span.start)

    def settle(self) -> None:
        self.finish_list()
        while self.answers:
            self.answer()
            self.check()
        while self.cursor < len(self.history):
            self.watch_step()
            self.check()
        assert {Request.of(object_): object_ for object_ in self.store.objects()} == self.objects
        assert self.store.unconfirmed == 0


@pytest.mark.parametrize("first_seed", range(0, 300, 30))
def test_whatever_comes_in_whatever_order_no_key_ever_goes_back_in_time(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 30):
        run_model(seed)


def run_model(seed: int) -> None:
    server = ModelServer(seed)
    random_ = server.random
    keys = [Request("default", name) for name in "abc"]
    steps = [
        (server.watch_step, 30),
        (server.answer, 15),
        (server.start_list, 1),
        (server.finish_list, 2),
        (server.bookmark, 1),
        (lambda: server.own_write(random_.choice(keys)), 15),
        (lambda: server.write(random_.choice(keys)), 10),
    ]
    actions = [action for action, _ in steps]
    weights = [weight for _, weight in steps]
    for _ in range(200):
        random_.choices(actions, weights)[0]()
        server.check()
    server.settle()
