"""A real kube-apiserver judges the definitions: every field at every depth, every rule of ``docs/spec/crds.md`` 4-7.

What is expected is made from the document by ``tests.api.document``, not from the declaration that the definitions
are made from. A manifest breaks one rule in as many places as the causes of one refusal can tell apart, so that a few
requests judge thousands of places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from runherd.api.crds import crds
from tests.api import document
from tests.api.manifests import (
    UNKNOWN,
    Place,
    changed,
    field_name,
    maximal,
    minimal,
    places,
    with_defaults,
    without,
)
from tests.controlplane.client import Client, Response
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.waiting import wait_until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API = "/apis/actions.github.com/v1alpha1"


@dataclass(frozen=True)
class Part:
    """The spec or the status of one kind: its schema, and a way to have the API server judge a value for it."""

    kind: str
    name: str
    schema: dict[str, Any]
    client: Client
    collection: str

    def submit(self, value: Any, validation: str = "Strict") -> Response:
        """Sends an object with this part, as a dry run: a spec with a create, a status with an update of the status."""
        query = f"dryRun=All&fieldValidation={validation}"
        if self.name == "spec":
            return self.client.request("POST", f"{self.collection}?{query}", manifest(self.kind, spec=value))
        stored = self.client.get(f"{self.collection}/stored")
        return self.client.request("PUT", f"{self.collection}/stored/status?{query}", {**stored, "status": value})

    def stored(self, value: Any, validation: str = "Strict") -> Any:
        """What would be stored for ``value``, which must be accepted."""
        response = self.submit(value, validation)
        assert response.status in {200, 201}, response.body
        return response.json.get(self.name)

    def refused(self, value: Any) -> set[str]:
        """The fields that a refusal of ``value`` is about, which must be refused as invalid."""
        response = self.submit(value)
        assert response.status == 422, response.body
        return {cause["field"] for cause in response.json["details"]["causes"]} - {"<nil>"}

    def places(self, wanted: Callable[[Place], bool]) -> list[Place]:
        """All places of the maximal value that are ``wanted``, the inner ones first."""
        return [place for place in places(self.schema, maximal(self.schema)) if wanted(place)][::-1]

    def fields(self, found: list[Place], within: Callable[[Place], list[str]] | None = None) -> set[str]:
        """What the API server calls the places ``found``, or the fields ``within`` each of them."""
        if within is None:
            return {field_name((self.name, *place.path)) for place in found}
        return {field_name((self.name, *place.path, name)) for place in found for name in within(place)}


def manifest(kind: str, name: str = "tried", **parts: Any) -> dict[str, Any]:
    """An object with ``parts``: spec, status."""
    return {"apiVersion": "actions.github.com/v1alpha1", "kind": kind, "metadata": {"name": name}, **parts}


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace with a small object called ``stored`` of each kind."""
    client = control_plane.client()
    for crd in crds():
        name = crd["metadata"]["name"]
        if not client.exists(f"{DEFINITIONS}/{name}"):
            client.create(DEFINITIONS, crd)
    created = control_plane.create_namespace()
    for kind in document.KINDS:
        collection = f"{API}/namespaces/{created}/{kind.lower()}s"
        served(client, collection)
        spec = minimal(document.schema(kind)["properties"]["spec"])
        client.create(collection, manifest(kind, "stored", spec=spec))
    yield created
    client.delete(f"/api/v1/namespaces/{created}")


def served(client: Client, collection: str) -> None:
    """Waits until a new kind is served: until then its paths answer 404, and 429 while its storage is made."""
    wait_until(lambda: client.request("GET", collection).status == 200, f"{collection} is served")


@pytest.fixture(
    scope="module", params=[(kind, part) for kind in document.KINDS for part in ("spec", "status")], ids="-".join
)
def part(request: pytest.FixtureRequest, control_plane: ControlPlane, namespace: str) -> Part:
    kind, name = request.param
    schema = document.schema(kind)["properties"][name]
    return Part(kind, name, schema, control_plane.client(), f"{API}/namespaces/{namespace}/{kind.lower()}s")


def is_scalar(place: Place) -> bool:
    return not isinstance(place.value, dict | list)


def is_container(place: Place) -> bool:
    return not is_scalar(place)


def has_fields(place: Place) -> bool:
    return "properties" in place.schema


def has_required_fields(place: Place) -> bool:
    return bool(place.schema.get("required"))


def by_depth(found: list[Place]) -> Iterator[list[Place]]:
    """``found`` in groups whose members don't contain each other."""
    for depth in sorted({len(place.path) for place in found}):
        yield [place for place in found if len(place.path) == depth]


# --- Every field, every default ----------------------------------------------------------------------------------


def test_every_field_is_stored_as_given(part: Part) -> None:
    value = maximal(part.schema)
    assert part.stored(value) == value


def test_only_required_fields_are_needed_and_defaults_are_stored(part: Part) -> None:
    value = minimal(part.schema)
    expected = with_defaults(part.schema, value)
    assert part.stored(value) == expected
    if part.name == "spec":
        assert expected != value


def test_empty_lists_maps_and_objects_are_stored_as_given(part: Part) -> None:
    may_be_empty = part.places(lambda place: is_container(place) and not has_required_fields(place))
    for group in by_depth(may_be_empty):
        value = changed(maximal(part.schema), group, lambda old, _: type(old)())
        assert part.stored(value) == with_defaults(part.schema, value)


# --- Types -------------------------------------------------------------------------------------------------------


def wrong_scalars(schema: dict[str, Any]) -> list[Any]:
    """Values that no field of this type takes, each nearly right."""
    if "pattern" in schema:
        return ["64Foo", True, []]
    if "x-kubernetes-int-or-string" in schema:
        return [True, 1.5, {}]
    if schema.get("format") == "date-time":
        return ["yesterday", 7, True]
    wrong: dict[str, list[Any]] = {
        "string": [7, True, []],
        "boolean": ["true", 1, []],
        "integer": ["5", 1.5, {}],
        "number": ["0.5", True, []],
    }
    return wrong[schema["type"]]


@pytest.mark.parametrize("choice", range(3))
def test_scalars_of_another_type_are_refused(part: Part, choice: int) -> None:
    scalars = part.places(is_scalar)
    value = changed(maximal(part.schema), scalars, lambda _, place: wrong_scalars(place.schema)[choice])
    # A fraction where an integer belongs is, in some lists, told of the whole part as well.
    assert part.refused(value) - {part.name} == part.fields(scalars)


@pytest.mark.parametrize("wrong", ["text", 7, True])
def test_objects_maps_and_lists_of_another_type_are_refused(part: Part, wrong: object) -> None:
    for group in by_depth(part.places(is_container)):
        assert part.refused(changed(maximal(part.schema), group, lambda *_: wrong)) == part.fields(group)


def test_an_object_is_no_list_and_a_list_no_object(part: Part) -> None:
    for group in by_depth(part.places(is_container)):
        value = changed(maximal(part.schema), group, lambda old, _: [] if isinstance(old, dict) else {})
        assert part.refused(value) == part.fields(group)


@pytest.mark.parametrize("value", [8080, "0.5"])
def test_places_for_integers_and_strings_take_both(part: Part, value: object) -> None:
    found = part.places(lambda place: "x-kubernetes-int-or-string" in place.schema)
    given = changed(maximal(part.schema), found, lambda *_: value)
    assert part.stored(given) == given


# --- Required fields and null ------------------------------------------------------------------------------------


def required_of(place: Place) -> list[str]:
    names: list[str] = place.schema["required"]
    return names


def optional_of(place: Place) -> list[str]:
    return [name for name in place.schema.get("properties", ()) if name not in place.schema.get("required", ())]


def test_missing_required_fields_are_refused(part: Part) -> None:
    for group in by_depth(part.places(has_required_fields)):
        value = changed(maximal(part.schema), group, lambda old, place: without(old, required_of(place)))
        assert part.refused(value) >= part.fields(group, required_of)


def test_null_for_a_required_field_is_a_missing_field(part: Part) -> None:
    for group in by_depth(part.places(has_required_fields)):
        value = changed(maximal(part.schema), group, lambda old, place: {**old, **dict.fromkeys(required_of(place))})
        assert part.refused(value) >= part.fields(group, required_of)


def test_null_for_an_optional_field_is_dropped_or_gives_the_default(part: Part) -> None:
    for group in by_depth(part.places(lambda place: bool(optional_of(place)))):
        null = changed(maximal(part.schema), group, lambda old, place: {**old, **dict.fromkeys(optional_of(place))})
        absent = changed(maximal(part.schema), group, lambda old, place: without(old, optional_of(place)))
        assert part.stored(null) == with_defaults(part.schema, absent)


# --- Unknown fields ----------------------------------------------------------------------------------------------


def with_unknown_fields(part: Part) -> Any:
    return changed(maximal(part.schema), part.places(has_fields), lambda old, _: {**old, UNKNOWN: {"a": 1}})


def test_unknown_fields_are_pruned_at_every_depth(part: Part) -> None:
    assert part.stored(with_unknown_fields(part), "Ignore") == maximal(part.schema)


def test_unknown_fields_are_refused_by_strict_validation(part: Part) -> None:
    response = part.submit(with_unknown_fields(part))
    assert response.status == 400
    named = set(re.findall(r'unknown field "(.+?)"', response.json["message"]))
    assert named == part.fields(part.places(has_fields), lambda _: [UNKNOWN])


# --- Lists -------------------------------------------------------------------------------------------------------


def list_type(place: Place) -> str | None:
    """``map``, ``set`` or ``atomic`` (which a list without a type is too); None for what is no list."""
    return place.schema.get("x-kubernetes-list-type", "atomic") if isinstance(place.value, list) else None


def test_equal_keys_and_equal_members_of_sets_are_refused(part: Part) -> None:
    keyed = part.places(lambda place: list_type(place) in {"map", "set"})
    value = changed(maximal(part.schema), keyed, lambda old, _: [old[0], old[0]])
    assert keyed
    assert part.refused(value) >= {f"{name}[1]" for name in part.fields(keyed)}


def test_equal_items_of_other_lists_are_stored(part: Part) -> None:
    others = part.places(lambda place: list_type(place) == "atomic")
    value = changed(maximal(part.schema), others, lambda old, _: [old[0], old[0]])
    assert part.stored(value) == value


@pytest.mark.parametrize("number", [0, 1])
def test_items_that_differ_in_one_key_are_stored(part: Part, number: int) -> None:
    def with_another(old: list[Any], place: Place) -> list[Any]:
        keys = place.schema["x-kubernetes-list-map-keys"]
        key = keys[number % len(keys)]
        return [old[0], {**old[0], key: 8 if isinstance(old[0][key], int) else "other"}]

    value = changed(maximal(part.schema), part.places(lambda place: list_type(place) == "map"), with_another)
    assert part.stored(value) == value


# --- The checks of section 7.7, and others by hand ---------------------------------------------------------------


@dataclass(frozen=True)
class Specs:
    """Judges specs of all kinds."""

    client: Client
    namespace: str

    def submit(self, kind: str, spec: Any, validation: str = "Strict") -> Response:
        path = f"{API}/namespaces/{self.namespace}/{kind.lower()}s?dryRun=All&fieldValidation={validation}"
        return self.client.request("POST", path, manifest(kind, spec=spec))

    def accepts(self, kind: str, spec: Any) -> bool:
        status = self.submit(kind, spec).status
        assert status in {201, 422}
        return status == 201

    def stored(self, kind: str, spec: Any, validation: str = "Strict") -> Any:
        response = self.submit(kind, spec, validation)
        assert response.status == 201, response.body
        return response.json["spec"]


@pytest.fixture(scope="module")
def specs(control_plane: ControlPlane, namespace: str) -> Specs:
    return Specs(control_plane.client(), namespace)


def runner_set(**container: Any) -> dict[str, Any]:
    """The spec of an AutoscalingRunnerSet with one container."""
    return {"template": {"spec": {"containers": [{"name": "runner", **container}]}}}


RUNNER = {"githubConfigUrl": "https://github.com/o/r", "githubConfigSecret": "s", "runnerScaleSetId": 1}
VAULT = {"url": "u", "tenantId": "t", "clientId": "c", "certificatePath": "p"}
PROBE = {"httpGet": {"path": "/"}}


@pytest.mark.parametrize(
    ("kind", "spec", "accepted"),
    [
        ("AutoscalingRunnerSet", {}, True),
        ("AutoscalingRunnerSet", {"minRunners": -1}, False),
        ("AutoscalingRunnerSet", {"maxRunners": -1}, False),
        ("AutoscalingRunnerSet", {"minRunners": 0, "maxRunners": 0}, True),
        ("AutoscalingRunnerSet", {"minRunners": 5, "maxRunners": 1}, True),
        ("AutoscalingRunnerSet", {"maxRunners": "5"}, False),
        ("AutoscalingListener", {"minRunners": -1}, False),
        ("AutoscalingListener", {"maxRunners": -1}, False),
        ("AutoscalingListener", {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, True),
        ("EphemeralRunnerSet", {"replicas": 1}, False),
        ("EphemeralRunnerSet", {"patchID": 0}, True),
        ("EphemeralRunnerSet", {"patchID": 0, "replicas": -1}, True),
        ("EphemeralRunnerSet", {"patchID": 0, "ephemeralRunnerSpec": {}}, False),
        ("EphemeralRunner", {}, False),
        ("EphemeralRunner", {name: RUNNER[name] for name in ("githubConfigUrl", "githubConfigSecret")}, False),
        ("EphemeralRunner", RUNNER, True),
        ("EphemeralRunner", {**RUNNER, "spec": {"containers": []}}, True),
        ("AutoscalingRunnerSet", {"template": {"spec": {}}}, False),
        ("AutoscalingRunnerSet", {"template": {"spec": {"containers": [{"image": "i"}]}}}, False),
        ("AutoscalingRunnerSet", {"listenerTemplate": {"metadata": {"labels": {"a": "b"}}}}, True),
        ("AutoscalingRunnerSet", {"template": {"metadata": {"labels": {"a": 1}}}}, False),
        ("AutoscalingRunnerSet", {"template": {"metadata": {"annotations": {"a": True}}}}, False),
        ("AutoscalingRunnerSet", {"template": {"metadata": {"labels": {"not a label": "??"}}}}, True),
        ("AutoscalingRunnerSet", runner_set(livenessProbe={"httpGet": {**PROBE["httpGet"], "port": 8080}}), True),
        ("AutoscalingRunnerSet", runner_set(livenessProbe={"httpGet": {**PROBE["httpGet"], "port": "http"}}), True),
        ("AutoscalingRunnerSet", runner_set(livenessProbe={"grpc": {"port": "http"}}), False),
        ("AutoscalingRunnerSet", runner_set(env=[{"name": "A"}, {"name": "A"}]), False),
        ("AutoscalingRunnerSet", runner_set(volumeMounts=[{"name": n, "mountPath": "/m"} for n in "ab"]), False),
        ("AutoscalingRunnerSet", runner_set(ports=[{"containerPort": 80}, {"containerPort": 80}]), False),
        (
            "AutoscalingRunnerSet",
            runner_set(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]),
            False,
        ),
        (
            "AutoscalingRunnerSet",
            runner_set(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]),
            True,
        ),
        ("AutoscalingRunnerSet", runner_set(restartPolicy="Sometimes", imagePullPolicy="Perhaps"), True),
        ("AutoscalingRunnerSet", {"vaultConfig": {"azureKeyVault": VAULT}}, True),
        ("AutoscalingRunnerSet", {"vaultConfig": {"type": "another"}}, True),
        (
            "AutoscalingRunnerSet",
            {"vaultConfig": {"azureKeyVault": {name: VAULT[name] for name in VAULT if name != "url"}}},
            False,
        ),
        ("AutoscalingRunnerSet", {"listenerMetrics": {"counters": {"x": {}}}}, False),
        ("AutoscalingRunnerSet", {"listenerMetrics": {"histograms": {"x": {"buckets": [0.5, 1]}}}}, False),
        (
            "AutoscalingRunnerSet",
            {"listenerMetrics": {"histograms": {"x": {"buckets": [0.5, 1], "labels": []}}}},
            True,
        ),
    ],
)
def test_accepted_or_refused(specs: Specs, kind: str, spec: Any, accepted: bool) -> None:
    assert specs.accepts(kind, spec) is accepted


@pytest.mark.parametrize(
    ("quantity", "accepted"),
    [
        *(
            (value, True)
            for value in (2, 0, "2", "250m", "64Mi", "1e3", "1E-3", "+.5", "-1.", "0.5Gi", "100n", "7u", "3k")
        ),
        *((value, False) for value in ("64Foo", "", "Mi", "1 Gi", "1ki", "1e", "0x10", "1,5", "64mi", 1.5, True)),
    ],
)
def test_quantities(specs: Specs, quantity: object, accepted: bool) -> None:
    assert specs.accepts("AutoscalingRunnerSet", runner_set(resources={"limits": {"memory": quantity}})) is accepted


def test_stored_with_defaults(specs: Specs) -> None:
    kind = "AutoscalingRunnerSet"
    key = {"valueFrom": {"secretKeyRef": {"key": "k"}}}
    container = {"ports": [{"containerPort": 80}], "env": [{"name": "A", **key}]}
    [stored] = specs.stored(kind, runner_set(**container))["template"]["spec"]["containers"]
    assert stored["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert stored["env"] == [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k", "name": ""}}}]


def test_pruned_without_strict_validation(specs: Specs) -> None:
    expected = {
        **runner_set(),
        "vaultConfig": {"azureKeyVault": VAULT},
    }
    given = {
        "updateStrategy": "immediate",
        "template": {
            "status": {"phase": "Running"},
            "metadata": {"generateName": "g", "ownerReferences": [], "creationTimestamp": None, "uid": "u"},
            "spec": {"containers": [{"name": "runner", "ressources": {}}]},
        },
        "vaultConfig": {"azureKeyVault": {**VAULT, "secretKey": None}},
    }
    stored = specs.stored("AutoscalingRunnerSet", given, "Ignore")
    assert stored == {**expected, "template": {**expected["template"], "metadata": {}}}
    response = specs.submit("AutoscalingRunnerSet", given)
    assert response.status == 400
    assert 'unknown field "spec.template.spec.containers[0].ressources"' in response.json["message"]


def test_what_charts_render_without_a_value_is_dropped(specs: Specs) -> None:
    given = {
        "ephemeralRunnerMetadata": None,
        "listenerRoleMetadata": {"labels": None},
        "proxy": {"http": {"url": None}},
        "minRunners": None,
        **runner_set(env=None),
    }
    assert specs.stored("AutoscalingRunnerSet", given) == {
        "listenerRoleMetadata": {},
        "proxy": {"http": {}},
        **runner_set(),
    }


def test_counts_without_a_field_are_pruned_from_the_status(part: Part) -> None:
    if part.name == "status":
        value = {**minimal(part.schema), "finishedEphemeralRunners": 1, "deletingEphemeralRunners": 1}
        assert part.stored(value, "Ignore") == minimal(part.schema)


@pytest.mark.parametrize("kind", document.KINDS)
def test_not_even_a_spec_is_required(specs: Specs, kind: str) -> None:
    path = f"{API}/namespaces/{specs.namespace}/{kind.lower()}s?dryRun=All&fieldValidation=Strict"
    created = specs.client.create(path, manifest(kind))
    assert set(created) == {"apiVersion", "kind", "metadata"}


def test_status_of_a_create_is_dropped(specs: Specs) -> None:
    path = f"{API}/namespaces/{specs.namespace}/ephemeralrunners?dryRun=All"
    created = specs.client.create(path, manifest("EphemeralRunner", spec=RUNNER, status={"phase": "Running"}))
    assert "status" not in created


def test_server_side_apply_merges_keyed_lists_and_replaces_others(control_plane: ControlPlane, namespace: str) -> None:
    client = control_plane.client()
    path = f"{API}/namespaces/{namespace}/autoscalingrunnersets/applied"

    def apply(manager: str, **container: Any) -> Any:
        response = client.request(
            "PATCH",
            f"{path}?fieldManager={manager}&force=true",
            manifest("AutoscalingRunnerSet", "applied", spec=runner_set(**container)),
            content_type="application/apply-patch+yaml",
        )
        assert response.status in {200, 201}, response.body
        [result] = response.json["spec"]["template"]["spec"]["containers"]
        return result

    apply("one", env=[{"name": "A", "value": "1"}], args=["one"])
    merged = apply("two", env=[{"name": "B", "value": "2"}], args=["two"])
    assert {variable["name"] for variable in merged["env"]} == {"A", "B"}
    assert merged["args"] == ["two"]
