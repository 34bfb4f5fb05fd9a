from typing import Any

from django.apps import AppConfig
from django.apps import apps as current
from django.db.models.signals import post_migrate


class CatalogConfig(AppConfig):
    name = "catalog"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        post_migrate.connect(create_default_organisation, sender=self)


def create_default_organisation(using: str, apps: Any = current, **options: Any) -> None:
    """Creates the default organisation after `migrate` and after `flush`, which empties the tables."""
    try:
        organisation = apps.get_model("catalog", "Organisation")
    except LookupError:  # migrated back to a state without the catalog
        return
    organisation._default_manager.using(using).get_or_create(slug="default", defaults={"name": "Default"})
