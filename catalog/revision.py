"""Which state of the catalog a page or REST list shows; both are kept, and not sent twice, until it changes."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.cache import caches
from django.db import connection
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.translation import get_language_from_request

from catalog import clock
from catalog.accounts import caller_of

NOT_SHOWN = (
    "scoredrow",  # replaced together with its scorecard, whose new row shows it
    "pricesource",
    "pricerefresh",
    "heldprice",
    "priceimport",
    "heldevidence",
    "smallestunit",
    "membership",
    "invitation",
    "auditevent",
    "identity",
    "serviceaccount",
    "quota",
    "retention",
    "usage",
)  # changed in place, on no kept page
VIEWER = ("sessionid", "csrftoken")  # cookies: the navigation names the user, and its forms hold a token
CURRENCY = "currency"  # cookie: the currency that the reader chose
REVALIDATE = "private, no-cache"
MAX_BYTES = 2_000_000

View = Callable[..., Any]


def revision() -> str:
    """A digest of the catalog's state: rows are added or change together with a row of their history."""
    with connection.cursor() as cursor:
        cursor.execute(statement())
        return hashlib.sha256(repr(sorted(cursor.fetchall())).encode()).hexdigest()[:20]


@cache
def statement() -> str:
    """One query for the newest row and the number of rows of every table that pages show."""
    quote = connection.ops.quote_name
    parts = [
        f"SELECT '{model._meta.model_name}', MAX({quote(str(key.column))}), COUNT(*) FROM {quote(model._meta.db_table)}"
        for model in shown_models()
        if (key := model._meta.pk)
    ]
    return " UNION ALL ".join(parts)


def shown_models() -> Iterator[type[Model]]:
    """The models of the catalog and their histories, in a fixed order."""
    for model in apps.get_app_config("catalog").get_models():
        if model._meta.model_name not in NOT_SHOWN:
            yield model


@cache
def program() -> str:
    """A digest of the code, templates and styles that pages are made of."""
    folders = [settings.BASE_DIR / name for name in ("catalog", "advisor")]
    files = [path for folder in folders for kind in ("py", "html", "css", "js") for path in folder.rglob(f"*.{kind}")]
    stats = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(files)]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:20]


def key_of(request: HttpRequest, state: str, *, by_viewer: bool) -> str:
    """A digest of everything that a kept response depends on."""
    if by_viewer:
        viewer = [viewer_of(request), *(request.COOKIES.get(name) for name in VIEWER)]
    else:
        owner = caller_of(request).own if getattr(request, "user", None) is not None else None
        viewer = [str(owner.pk) if owner else None]  # whose own models it shows: none to visitors
    parts = [
        state, program(), clock.today().isoformat(), request.build_absolute_uri(),
        get_language_from_request(request) if by_viewer else None,
        request.COOKIES.get(CURRENCY) if by_viewer else None, request.headers.get("HX-Request"),
        request.headers.get("Accept"), viewer,
    ]  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def viewer_of(request: HttpRequest) -> list[Any]:
    """What the navigation and the controls of a page depend on: names, organization and rights."""
    if getattr(request, "user", None) is None:
        return []
    caller = caller_of(request)
    organisation = caller.organisation and (caller.organisation.pk, caller.organisation.name)
    names = [caller.user.pk, caller.user.get_short_name()] if caller.account else []
    return [
        caller.name,
        *names,
        organisation,
        caller.role,
        sorted(caller.rights),
        caller.is_alone,
        len(caller.memberships),
    ]


def kept(view: View, *, by_viewer: bool = True) -> View:
    """A view of the catalog alone, rendered once for each of its states; 304 where the client has the newest.

    `by_viewer`: its page also shows the navigation, which depends on the user.
    """

    @wraps(view)
    def respond(*args: Any, **kwargs: Any) -> HttpResponse:
        request = next(each for each in args if hasattr(each, "META"))  # the view is a function or a method
        if request.method not in ("GET", "HEAD") or has_messages(request):
            return view(*args, **kwargs)
        key = key_of(request, revision(), by_viewer=by_viewer)
        if unchanged := get_conditional_response(request, etag=f'"{key}"'):
            return marked(unchanged, key)
        known = caches["pages"].get(key)
        response = from_store(known) if known else rendered(view(*args, **kwargs))
        if not known and keepable(request, response):
            caches["pages"].set(key, to_store(response))
        return marked(response, key) if known or keepable(request, response) else response

    return respond


def kept_list(view: View) -> View:
    """The same for a REST list, which is equal for everyone in an organization who may read it."""
    return kept(view, by_viewer=False)


def has_messages(request: HttpRequest) -> bool:
    """Whether the page will show a message once."""
    storage = getattr(request, "_messages", None)
    return bool(storage is not None and len(storage))


def rendered(response: HttpResponse) -> HttpResponse:
    """A response of the REST framework as bytes."""
    if not hasattr(response, "data"):
        return response
    from rest_framework.renderers import JSONRenderer  # here, because commands read revisions and render nothing

    plain = HttpResponse(JSONRenderer().render(response.data), status=response.status_code)
    plain["Content-Type"] = "application/json"
    return plain


def keepable(request: HttpRequest, response: HttpResponse) -> bool:
    """Whether it is complete, not too long, and starts no session or form token for its viewer."""
    if response.status_code != 200 or response.streaming or response.cookies:
        return False
    return len(response.content) <= MAX_BYTES and not request.META.get("CSRF_COOKIE_NEEDS_UPDATE")


def to_store(response: HttpResponse) -> tuple[dict[str, str], bytes]:
    return dict(response.items()), zlib.compress(response.content, 1)


def from_store(stored: tuple[dict[str, str], bytes]) -> HttpResponse:
    headers, packed = stored
    return HttpResponse(zlib.decompress(packed), headers=headers)


def marked(response: HttpResponse, key: str) -> HttpResponse:
    """The response with its ETag; browsers may keep it and must ask before they show it again."""
    response["ETag"] = f'"{key}"'
    response["Cache-Control"] = REVALIDATE
    patch_vary_headers(response, ("Cookie", "Authorization", "Accept-Language"))
    return response
