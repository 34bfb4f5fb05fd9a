"""Saved views: a name for the filters, sorting and columns of a list, for one organization."""

import pytest

from catalog.models import Organisation, SavedView
from tests import people

pytestmark = pytest.mark.django_db
GIVEN = {
    "list_name": "prices",
    "name": "Cheap in the EU",
    "query": "?term=spot&columns=provider,term&search=&page=3&x=1",
}


def save(client, **changes):
    return client.post("/catalog/views", GIVEN | changes)


def test_a_view_is_saved_without_empty_and_unknown_parts_and_opens(client):
    saved = save(client)
    assert saved["Location"] == "/catalog/prices?term=spot&columns=provider,term"
    client.get("/catalog/prices")  # the message is shown once
    text = client.get("/catalog/prices").content.decode()
    assert '<a href="?term=spot&amp;columns=provider,term">Cheap in the EU</a>' in text
    assert "Cheap in the EU" not in client.get("/catalog/accelerators").content.decode()
    here = client.get("/catalog/prices?term=spot&columns=provider,term").content.decode()
    assert 'columns=provider,term" aria-current="page">Cheap in the EU' in here


def test_saving_under_a_known_name_replaces_the_view(client):
    save(client)
    save(client, query="term=purchase")
    assert SavedView.objects.get().query == "term=purchase"


def test_a_view_can_be_deleted(client):
    save(client)
    client.post("/catalog/views", {"delete": SavedView.objects.get().pk})
    assert not SavedView.objects.exists()
    assert "There are no saved views" in client.get("/catalog/views").content.decode()


@pytest.mark.parametrize("wrong", [{"name": ""}, {"list_name": "secrets"}, {"query": "search=" + "x" * 2000}])
def test_a_wrong_view_is_refused(client, wrong):
    assert save(client, **wrong).status_code == 422
    assert not SavedView.objects.exists()


def test_another_organization_does_not_see_or_delete_it(client):
    other = Organisation.objects.create(slug="other", name="Other")
    row = SavedView.objects.create(organisation=other, list_name="prices", name="Theirs", query="")
    assert "Theirs" not in client.get("/catalog/prices").content.decode()
    client.post("/catalog/views", {"delete": row.pk})
    assert SavedView.objects.filter(pk=row.pk).exists()


def test_planners_save_views_and_viewers_and_visitors_do_not(client):
    planner, viewer = people.member("ada", "planner"), people.member("bob", "viewer")
    assert "/login" in save(client)["Location"]
    client.force_login(viewer)
    assert save(client).status_code == 403 and not SavedView.objects.exists()
    assert "Save this view" not in client.get("/catalog/prices").content.decode()
    client.force_login(planner)
    save(client)
    assert SavedView.objects.get().made_by == "ada"
