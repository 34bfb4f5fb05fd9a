"""The one way to declare a REST call or a parameter deprecated: headers of its responses, and marks in OpenAPI.

`@deprecated(Deprecation(...))` on a view. Responses then have Deprecation (RFC 9745), Sunset (RFC 8594) and Link
headers; those of a parameter only if the call gives it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.utils.http import http_date
from drf_spectacular.openapi import AutoSchema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

View = TypeVar("View", bound=type[APIView])


@dataclass(frozen=True, kw_only=True, slots=True)
class Deprecation:
    since: datetime
    link: str  # a page that says what to use instead
    sunset: datetime | None = None  # it may stop working then
    parameter: str = ""  # of the URL; empty: the whole view

    def applies(self, request: Request) -> bool:
        return not self.parameter or self.parameter in request.query_params

    def headers(self) -> dict[str, str]:
        found = {"Deprecation": f"@{int(self.since.timestamp())}"}
        if self.sunset is not None:
            found["Sunset"] = http_date(self.sunset.timestamp())
        return found


def deprecated(*declared: Deprecation) -> Callable[[View], View]:
    """Declares a view, or parameters of it, deprecated. Where several apply, the first one gives the dates."""

    def mark(view: View) -> View:
        earlier: Any = view.finalize_response

        def finalize_response(self: APIView, request: Request, response: Response, *args: Any, **kw: Any) -> Any:
            response = earlier(self, request, response, *args, **kw)
            applying = [each for each in declared if each.applies(self.request)]
            for each in applying:
                for name, value in each.headers().items():
                    response.headers.setdefault(name, value)
            if applying:
                links = [f'<{each.link}>; rel="deprecation"; type="text/html"' for each in applying]
                response["Link"] = ", ".join(filter(None, [response.get("Link", ""), *links]))
            return response

        view.finalize_response = finalize_response  # type: ignore[method-assign]
        view.deprecations = declared  # type: ignore[attr-defined]
        return view

    return mark


class Schema(AutoSchema):
    """Marks deprecated operations and parameters in the OpenAPI document."""

    @property
    def declared(self) -> tuple[Deprecation, ...]:
        return tuple(getattr(self.view, "deprecations", ()))

    def is_deprecated(self) -> bool:
        return bool(super().is_deprecated()) or any(not each.parameter for each in self.declared)

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        operation = super().get_operation(*args, **kwargs)
        names = {each.parameter for each in self.declared}
        for parameter in (operation or {}).get("parameters", ()):
            if parameter["in"] == "query" and parameter["name"] in names:
                parameter["deprecated"] = True
        return operation
