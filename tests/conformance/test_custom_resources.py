"""Custom resources: validation with its causes, pruning, defaulting, status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import GROUP, MERGE_PATCH, Api, gadget, widget

_ONE_OF = 'Invalid value: "": "spec.choice" must validate one and only one schema (oneOf).'
INVALID, TYPE, REQUIRED = "FieldValueInvalid", "FieldValueTypeInvalid", "FieldValueRequired"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({}, [(REQUIRED, "spec.size", "Required value")]),
        (
            {"size": "big"},
            [(TYPE, "spec.size", 'Invalid value: "string": spec.size in body must be of type integer: "string"')],
        ),
        (
            {"size": 0},
            [(INVALID, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1")],
        ),
        (
            {"size": 11},
            [(INVALID, "spec.size", "Invalid value: 11: spec.size in body should be less than or equal to 10")],
        ),
        (
            {"size": 1.5},
            [
                (
                    INVALID,
                    "<nil>",
                    'Invalid value: "": Checked value must be of type integer with format int32 in spec.size',
                ),
                (TYPE, "spec.size", 'Invalid value: "float64": spec.size in body must be of type int32: "float64"'),
            ],
        ),
        (
            {"size": 1, "color": "blue"},
            [
                (
                    "FieldValueNotSupported",
                    "spec.color",
                    'Unsupported value: "blue": supported values: "red", "green"',
                )
            ],
        ),
        (
            {"size": 1, "label": "A"},
            [
                (INVALID, "spec.label", 'Invalid value: "A": spec.label in body should be at least 2 chars long'),
            ],
        ),
        (
            {"size": 1, "label": "ABC"},
            [(INVALID, "spec.label", "Invalid value: \"ABC\": spec.label in body should match '^[a-z]+$'")],
        ),
        (
            {"size": 1, "label": "abcdef"},
            [("FieldValueTooLong", "spec.label", "Too long: may not be more than 5 bytes")],
        ),
        (
            {"size": 1, "port": True},
            [
                (
                    TYPE,
                    "spec.port",
                    'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
                )
            ],
        ),
        (
            {"size": 1, "since": "yesterday"},
            [
                (
                    TYPE,
                    "spec.since",
                    'Invalid value: "yesterday": spec.since in body must be of type date-time: "yesterday"',
                )
            ],
        ),
        (
            {"size": 1, "ratio": 0},
            [(INVALID, "spec.ratio", "Invalid value: 0: spec.ratio in body should be greater than 0")],
        ),
        (
            {"size": 1, "flag": "true"},
            [(TYPE, "spec.flag", 'Invalid value: "string": spec.flag in body must be of type boolean: "string"')],
        ),
        (
            {"size": 1, "parts": []},
            [(INVALID, "spec.parts", "Invalid value: 0: spec.parts in body should have at least 1 items")],
        ),
        (
            {"size": 1, "parts": [{"name": str(i)} for i in range(4)]},
            [("FieldValueTooMany", "spec.parts", "Too many: 4: must have at most 3 items")],
        ),
        ({"size": 1, "parts": [{"count": 2}]}, [(REQUIRED, "spec.parts[0].name", "Required value")]),
        (
            {"size": 1, "parts": [{"name": "a"}, {"name": "b", "count": "x"}]},
            [
                (
                    TYPE,
                    "spec.parts[1].count",
                    'Invalid value: "string": spec.parts[1].count in body must be of type integer: "string"',
                )
            ],
        ),
        (
            {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
            [("FieldValueDuplicate", "spec.parts[1]", 'Duplicate value: {"name":"a"}')],
        ),
        ({"size": 1, "tags": ["x", "x"]}, [("FieldValueDuplicate", "spec.tags[1]", 'Duplicate value: "x"')]),
        (
            {"size": 1, "settings": {"a": "1", "b": "2", "c": "3"}},
            [("FieldValueTooMany", "spec.settings", "Too many: 3: must have at most 2 items")],
        ),
        (
            {"size": 1, "settings": {"a": 1}},
            [
                (
                    TYPE,
                    "spec.settings.a",
                    'Invalid value: "integer": spec.settings.a in body must be of type string: "integer"',
                )
            ],
        ),
        (
            {"size": 1, "choice": {}},
            [
                (
                    INVALID,
                    "<nil>",
                    'Invalid value: "": "spec.choice" must validate one and only one schema (oneOf). Found none valid',
                ),
                (REQUIRED, "spec.choice.a", "Required value"),
            ],
        ),
        (
            {"size": 1, "choice": {"a": "1", "b": "2"}},
            [
                (
                    INVALID,
                    "<nil>",
                    f"{_ONE_OF} Found 2 valid alternatives",
                )
            ],
        ),
    ],
)
async def test_validation_tells_each_cause(api: Api, spec: dict[str, Any], causes: list[tuple[str, str, str]]) -> None:
    answer = await api.call("POST", api.custom("widgets"), widget("a", spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == causes
    assert answer.message.startswith(f'Widget.{GROUP} "a" is invalid: ')
    details = answer.json["details"]
    assert (details["name"], details["group"], details["kind"]) == ("a", GROUP, "Widget")


async def test_several_causes_are_all_told(api: Api) -> None:
    answer = await api.call("POST", api.custom("widgets"), widget("a", {"size": 0, "color": "blue", "flag": 1}))
    assert [field for _, field, _ in answer.causes] == ["spec.size", "spec.color", "spec.flag"] or {
        field for _, field, _ in answer.causes
    } == {"spec.size", "spec.color", "spec.flag"}
    assert answer.message.startswith(f'Widget.{GROUP} "a" is invalid: [')


async def test_a_required_object_must_be_there(api: Api) -> None:
    body = widget("a")
    del body["spec"]
    answer = await api.call("POST", api.custom("widgets"), body)
    assert answer.causes == [(REQUIRED, "spec", "Required value")]


async def test_updates_and_patches_are_validated(api: Api) -> None:
    created = await api.create(api.custom("widgets"), widget("a"))
    created["spec"]["size"] = 99
    assert (await api.call("PUT", api.custom("widgets", "a"), created)).status == 422
    patch = {"spec": {"size": 99}}
    assert (await api.call("PATCH", api.custom("widgets", "a"), patch, content_type=MERGE_PATCH)).status == 422
    assert (await api.get(api.custom("widgets", "a")))["spec"]["size"] == 1


async def test_valid_values_are_kept(api: Api) -> None:
    spec = {
        "size": 10,
        "color": "green",
        "label": "abc",
        "port": "http",
        "since": "2026-01-01T00:00:00Z",
        "note": None,
        "ratio": 0.5,
        "flag": False,
        "parts": [{"name": "a", "count": 2}, {"name": "b", "count": 3}],
        "tags": ["x", "y"],
        "settings": {"a": "1"},
        "free": {"anything": [1, {"goes": None}]},
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"any": 1}},
        "nested": {"depth": 1},
        "choice": {"b": "2"},
    }
    created = await api.create(api.custom("widgets"), widget("a", spec))
    assert created["spec"] == spec


async def test_unknown_fields_are_pruned(api: Api) -> None:
    body = widget("a", {"size": 1, "bogus": 1, "nested": {"bogus": 2}, "parts": [{"name": "a", "bogus": 3}]}, bogus=4)
    created = await api.create(api.custom("widgets"), {**body, "bogus": 5})
    assert "bogus" not in str({**created, "metadata": {**created["metadata"], "managedFields": None}})
    assert (await api.create(api.custom("gadgets"), gadget("a", bogus={"kept": [1]})))["bogus"] == {"kept": [1]}


async def test_defaults_are_filled_in(api: Api) -> None:
    created = await api.create(api.custom("widgets"), widget("a", {"size": 1, "parts": [{"name": "a"}]}))
    assert created["spec"] == {
        "size": 1,
        "color": "red",
        "parts": [{"name": "a", "count": 1}],
        "nested": {"depth": 3},
    }
    patched = await api.patch(api.custom("widgets", "a"), {"spec": {"color": None, "nested": None}})
    assert patched["spec"]["color"] == "red"
    assert patched["spec"]["nested"] == {"depth": 3}


async def test_nulls_count_as_absent(api: Api) -> None:
    spec = {"size": 1, "color": None, "flag": None, "note": None, "nested": {"depth": None}, "free": {"a": None}}
    created = await api.create(api.custom("widgets"), widget("a", spec))
    assert created["spec"] == {"size": 1, "color": "red", "note": None, "nested": {"depth": 3}, "free": {"a": None}}


async def test_status_is_written_at_its_own_endpoint_only(api: Api) -> None:
    body = widget("a")
    body["status"] = {"phase": "Up"}
    created = await api.create(api.custom("widgets"), body)
    assert "status" not in created
    path, status = api.custom("widgets", "a"), api.custom("widgets", "a", "status")
    created["status"] = {"phase": "Up"}
    assert "status" not in await api.put(path, {**created, "spec": {"size": 2}})
    assert "status" not in await api.patch(path, {"status": {"phase": "Up"}})
    current = await api.get(path)
    current |= {"status": {"phase": "Up", "bogus": 1}, "spec": {"size": 5}}
    current["metadata"]["labels"] = {"a": "b"}
    written = await api.put(status, current)
    assert written["status"] == {"phase": "Up"}
    assert written["spec"]["size"] == 2
    assert "labels" not in written["metadata"]
    patched = await api.patch(status, {"status": {"ready": 3}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}})
    assert patched["status"] == {"phase": "Up", "ready": 3}
    assert patched["spec"]["size"] == 2
    assert "labels" not in patched["metadata"]
    assert (await api.get(status))["status"] == {"phase": "Up", "ready": 3}
    # A write through the main endpoint keeps it.
    assert (await api.patch(path, {"spec": {"size": 3}}))["status"] == {"phase": "Up", "ready": 3}


async def test_status_writes_conflict_and_are_validated(api: Api) -> None:
    created = await api.create(api.custom("widgets"), widget("a"))
    status = api.custom("widgets", "a", "status")
    await api.put(status, {**created, "status": {"ready": 1}})
    answer = await api.call("PUT", status, {**created, "status": {"ready": 2}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    answer = await api.call("PATCH", status, {"status": {"ready": "x"}}, content_type=MERGE_PATCH)
    assert answer.status == 422
    assert [field for _, field, _ in answer.causes] == ["status.ready"]
    assert (await api.call("POST", status, created)).status == 405


async def test_a_kind_without_a_status_endpoint_has_an_ordinary_status(api: Api) -> None:
    created = await api.create(api.custom("gadgets"), gadget("a", status={"x": 1}))
    assert created["status"] == {"x": 1}


async def test_a_definition_is_established_and_served(api: Api) -> None:
    definition = await api.get(f"{_CRDS}/widgets.{GROUP}")
    conditions = {each["type"]: (each["status"], each["reason"]) for each in definition["status"]["conditions"]}
    assert conditions["NamesAccepted"] == ("True", "NoConflicts")
    assert conditions["Established"] == ("True", "InitialNamesAccepted")
    assert definition["status"]["acceptedNames"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["wg"],
        "categories": ["all"],
    }
    assert definition["status"]["storedVersions"] == ["v1"]
    assert definition["spec"]["conversion"] == {"strategy": "None"}


def _minimal(**changes: Any) -> dict[str, Any]:
    schema: dict[str, Any] = changes.pop("schema", {"type": "object"})
    names = {"plural": "things", "kind": "Thing", **changes.pop("names", {})}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "t.runherd.dev", "scope": "Namespaced", "names": names, "versions": [version], **changes}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.t.runherd.dev"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        (_minimal(group="other.dev"), "metadata.name"),
        (_minimal(scope="Galaxy"), "spec.scope"),
        (_minimal(names={"kind": ""}), "spec.names.kind"),
        (_minimal(versions=[]), "spec.versions"),
        (_minimal(schema={}), "spec.validation.openAPIV3Schema.type"),
        (
            _minimal(schema={"type": "object", "properties": {"a": {"type": "array"}}}),
            "spec.validation.openAPIV3Schema.properties[a].items",
        ),
        (
            _minimal(schema={"type": "object", "properties": {"a": {}}}),
            "spec.validation.openAPIV3Schema.properties[a].type",
        ),
        (
            _minimal(schema={"type": "object", "properties": {"a": {"type": "text"}}}),
            "spec.validation.openAPIV3Schema.properties[a].type",
        ),
        (
            _minimal(schema={"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
            "spec.validation.openAPIV3Schema.properties[a].default",
        ),
    ],
)
async def test_a_bad_definition_is_refused(api: Api, definition: dict[str, Any], field: str) -> None:
    answer = await api.call("POST", _CRDS, definition)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert field in [cause[1] for cause in answer.causes], answer.causes


async def test_a_definition_comes_changes_and_goes(api: Api) -> None:
    definition = _minimal(schema={"type": "object", "properties": {"spec": {"type": "object"}}})
    await api.create(_CRDS, definition)
    things = f"/apis/t.runherd.dev/v1/namespaces/{api.namespace}/things"
    try:
        await api.until(things, lambda answer: answer.status == 200)
        body = {"apiVersion": "t.runherd.dev/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 1}}
        assert (await api.create(things, body))["spec"] == {}
        path = f"{_CRDS}/things.t.runherd.dev"
        schema = {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        }
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        await api.patch(path, {"spec": {"versions": [version]}})
        body |= {"metadata": {"name": "b"}}

        async def kept() -> bool:
            await api.call("DELETE", f"{things}/b")
            return bool((await api.create(things, body))["spec"])

        for _ in range(100):
            if await kept():
                break
        else:
            pytest.fail("the new schema is never used")
    finally:
        await api.call("DELETE", f"{_CRDS}/things.t.runherd.dev")
    await api.gone(f"{_CRDS}/things.t.runherd.dev")
    await api.gone(things)


async def test_names_that_are_taken_are_not_accepted(api: Api) -> None:
    definition = _minimal(group=GROUP, names={"plural": "doodads", "kind": "Widget"})
    definition["metadata"]["name"] = f"doodads.{GROUP}"
    await api.create(_CRDS, definition)
    path = f"{_CRDS}/doodads.{GROUP}"
    try:
        answer = await api.until(path, lambda answer: bool(answer.json.get("status", {}).get("conditions")))
        conditions = {
            each["type"]: (each["status"], each["reason"], each["message"])
            for each in answer.json["status"]["conditions"]
        }
        # The list's kind is taken too, which the real server says last.
        assert conditions["NamesAccepted"] == ("False", "ListKindConflict", '"WidgetList" is already in use')
        assert conditions["Established"] == ("False", "NotAccepted", "not all names are accepted")
        assert (await api.call("GET", f"/apis/{GROUP}/v1/doodads")).status == 404
    finally:
        await api.call("DELETE", path)
    await api.gone(path)
