"""Pages and forms."""

from advisor.web import (
    accuracy_page,
    comments,
    deletion_views,
    document_views,
    documentation,
    load_test_views,
    portfolio_form,
    price_pages,
    share_links,
    studies,
    views,
)
from advisor.web.answers import assumptions_page, compare_page, deployment_page, freshness_page, list_page
from advisor.web.rest import again, files, held, shared
from advisor.web.views import trouble
from advisor.web.what_if import quick_estimate
from advisor.web.what_if import views as what_if_views
