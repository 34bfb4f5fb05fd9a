"""All URLs: pages, REST API, catalog, admin and health checks."""

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularSwaggerSplitView

from advisor.accounts import pages
from advisor.api import Description
from advisor.ops import health, reader
from advisor.web import documentation

handler400 = "advisor.web.views.bad_request"
handler403 = "advisor.web.views.forbidden"
handler404 = "advisor.web.views.not_found"
handler500 = "advisor.web.views.server_error"

admin.autodiscover()

# Swagger uses inline styles, which are allowed on this page only.
docs = csp_update({"style-src": UNSAFE_INLINE})(
    SpectacularSwaggerSplitView.as_view(url_name="schema", template_name="advisor/api_docs.html")
)

urlpatterns = [
    path("", include("advisor.web_urls")),
    path("api/v1/", include("advisor.api_urls")),
    path("api/v1/", include("catalog.api_urls")),
    path("", include("probes.urls")),
    path("api/v1/", include("probes.api_urls")),
    path("api/agent/v1/", include("probes.agent_urls")),
    path("catalog/", include("catalog.urls")),
    path("api/schema/", Description.as_view(), name="schema"),
    path("api/docs/", docs, name="api-docs"),
    path("docs/", documentation.page, name="documentation-home"),
    path("docs/<path:path>", documentation.page, name="documentation"),
    path("", include("advisor.account_urls")),
    path("language", reader.choose, name="language"),
    path("admin/login/", pages.SignIn.as_view()),  # before the admin's own, so that it is audited
    path("admin/", admin.site.urls),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
]
