"""`?fields=`: the parts of an answer that a reader wants, as dotted paths; of a list, of each of its rows."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from catalog.rest.errors import CONTENT_TYPE, document, flat

NAME = "fields"
MOST_PATHS = 100
MOST_NAMED = 60  # fields that an error names
APPLIED = "fields_applied"  # on the request: a list has chosen them already
Tree = dict[str, "Tree"]  # empty: the whole part


def tree_of(request: Any) -> Tree | None:
    """The fields that the address names; None: all of them. ValidationError: it names none, or too many."""
    text = request.GET.get(NAME)
    if text is None or request.method not in ("GET", "HEAD"):
        return None
    paths = [path.strip() for path in text.split(",")]
    if not all(paths) or len(paths) > MOST_PATHS:
        raise ValidationError({NAME: [f"Name 1 to {MOST_PATHS} fields, separated by commas, such as id,links.self."]})
    tree: Tree = {}
    for path in sorted(paths, key=len):  # a whole part before its own parts, which it holds
        at, parts = tree, path.split(".")
        for n, part in enumerate(parts):
            if part in at and not at[part]:
                break
            at = at.setdefault(part, {})
            if n == len(parts) - 1:
                at.clear()
    return tree


def selected(request: Any, view: Any, data: Any) -> Any:
    """The chosen fields of an object, or of each of a list of them. ValidationError names those that there are."""
    tree = tree_of(request)
    if tree is None:
        return data
    check(tree, data if isinstance(data, list) else [data], shape_of(view))
    return chosen(data, tree)


def chosen(data: Any, tree: Tree) -> Any:
    if isinstance(data, list):
        return [chosen(each, tree) for each in data]
    if not tree or not isinstance(data, Mapping):
        return data
    return {name: chosen(data[name], part) for name, part in tree.items() if name in data}


def check(tree: Tree, samples: Iterable[Any], serializer: Any, path: str = "") -> None:
    """Refuses names that neither the description nor the data have; below what is empty, nothing is refused."""
    objects = [each for each in samples if isinstance(each, Mapping)]
    described = getattr(serializer, "fields", {})
    known = dict.fromkeys([*described, *(str(name) for each in objects for name in each)])
    for name, part in tree.items():
        if known and name not in known or not known and any(each is not None for each in samples):
            allowed = ", ".join(list(known)[:MOST_NAMED]) or "none: it has no fields"
            raise ValidationError({NAME: [f"{path}{name} is unknown; allowed are {allowed}."]})
        inner = [each[name] for each in objects if name in each]
        spread = [one for each in inner for one in (each if isinstance(each, list) else [each])]
        field = described.get(name)
        if part:
            check(part, spread, getattr(field, "child", field), f"{path}{name}.")


def shape_of(view: Any) -> Any:
    """A serializer of the view's rows; None: it has none."""
    try:
        made = view.get_serializer()
    except (AttributeError, AssertionError, TypeError):
        return None
    return made if isinstance(made, serializers.Serializer) else None


class ChooseFields:
    """Middleware: the fields of objects that REST views return; lists choose theirs in catalog.rest.Pages."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        return self.get_response(request)

    def process_template_response(self, request: Any, response: Any) -> Any:
        if NAME not in request.GET or not hasattr(response, "data") or hasattr(request, APPLIED):
            return response
        if response.status_code != 200 or isinstance(response.data, bytes | str):
            return response
        try:
            response.data = selected(request, (response.renderer_context or {}).get("view"), response.data)
        except ValidationError as error:
            response.status_code, response.content_type = 400, CONTENT_TYPE
            response.data = document(400, detail="Some fields are not valid.", errors=flat(error.detail))
        return response
