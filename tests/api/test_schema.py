from __future__ import annotations

import pytest

from runherd.api.schema import Column, Declaration, DeclarationError


def schema(type_: str, definitions: str = "") -> object:
    """What ``type_`` becomes."""
    [kind] = Declaration.parse(f"{definitions}\nkind K = f:{type_}").kinds()
    return kind.schema["properties"]["f"]


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("s", {"type": "string"}),
        ("b", {"type": "boolean"}),
        ("i", {"type": "integer"}),
        ("n", {"type": "number"}),
        ("i32", {"type": "integer", "format": "int32"}),
        ("i64", {"type": "integer", "format": "int64"}),
        ("dt", {"type": "string", "format": "date-time"}),
        ("{s}", {"type": "object", "additionalProperties": {"type": "string"}}),
        ("{b}~", {"type": "object", "additionalProperties": {"type": "boolean"}, "x-kubernetes-map-type": "atomic"}),
        ("[s]", {"type": "array", "items": {"type": "string"}}),
        ("[s]a", {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}),
        ("[s]set", {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        (
            "[s]m(a,b)",
            {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a", "b"],
            },
        ),
        ("{[b]}", {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "boolean"}}}),
        ("i>=0", {"type": "integer", "minimum": 0}),
        ('s=""', {"type": "string", "default": ""}),
        ("b=false", {"type": "boolean", "default": False}),
    ],
)
def test_types(type_: str, expected: object) -> None:
    assert schema(type_) == expected


def test_integers_or_strings_have_no_type() -> None:
    anything = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    assert schema("ios") == anything
    quantity = schema("qty")
    assert isinstance(quantity, dict)
    assert set(quantity) == {*anything, "pattern"}


def test_required_fields_and_atomic_objects() -> None:
    definitions = "T~ = a!:s; b:i; c!:b"
    assert schema("T", definitions) == {
        "type": "object",
        "required": ["a", "c"],
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}},
        "x-kubernetes-map-type": "atomic",
    }


def test_types_as_parameters() -> None:
    definitions = "Outer<A> = inner:Inner<A,[s]a>\nInner<A,B> = a:A; b:B"
    assert schema("Outer<[i]m(k)>", definitions) == schema("Plain", "Plain = inner:P\nP = a:[i]m(k); b:[s]a")


def test_indented_lines_continue_comments_and_blank_lines_do_not_count() -> None:
    definitions = "# about T\n\nT =\n    a:s;\n\n    b:s\n# between\n"
    assert schema("T", definitions) == schema("T", "T = a:s; b:s")


def test_kinds_and_their_columns_keep_their_order() -> None:
    text = "kind B = f:s\ncolumn Two Words string .f\ncolumn N integer .g.h\nkind A = f:i"
    kinds = Declaration.parse(text).kinds()
    assert [kind.name for kind in kinds] == ["B", "A"]
    assert kinds[0].columns == (Column("Two Words", "string", ".f"), Column("N", "integer", ".g.h"))
    assert kinds[1].columns == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("T : a:s", "neither a definition nor a kind nor a column: 'T : a:s'"),
        ("    a:s", "neither a definition nor a kind nor a column: ' a:s'"),
        ("column C string .f", "column before any kind: 'column C string .f'"),
        ("T = a:s\nT = b:s", "type T is defined twice: 'T = b:s'"),
        ("s = b:s", "type s is defined twice: 's = b:s'"),
        ("kind K = f", "not a field: 'f'"),
        ("kind K = f:s; ", "not a field: ''"),
        ("kind K = f:Missing", "unknown type Missing"),
        ("kind K = f:T<s>\nT = a:s", "type T takes 0 parameters, not 1"),
        ("kind K = f:T\nT<A> = a:A", "type T takes 1 parameters, not 0"),
        ("kind K = f:[s", "expected ']' in type '[s'"),
        ("kind K = f:[", "type ends too early: '['"),
        ("kind K = f:{s", "expected '}' in type '{s'"),
        ("kind K = f:[s]m", "expected '(' in type '[s]m'"),
        ("kind K = f:[s]x", "not a type: '[s]x'"),
        ("kind K = f:s?", "not a type: 's?'"),
        ("kind K = f:T<s\nT<A> = a:A", "expected '>' in type 'T<s'"),
        ("kind K = f:s=nothing", "default of 'f:s=nothing' is not JSON: "),
        ("kind K = f:s=[]", "default of 'f:s=[]' is no string, boolean or integer"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, message: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        Declaration.parse(text).kinds()
    assert str(raised.value).startswith(message)
