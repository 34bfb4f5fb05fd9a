"""Pages and forms."""

from advisor.web import (
    accuracy_page,
    charts,
    deletion_views,
    document_views,
    documentation,
    load_test_views,
    tuning_charts,
    views,
)
from advisor.web.views import trouble

__all__ = [
    "accuracy_page",
    "charts",
    "deletion_views",
    "document_views",
    "documentation",
    "load_test_views",
    "trouble",
    "tuning_charts",
    "views",
]
