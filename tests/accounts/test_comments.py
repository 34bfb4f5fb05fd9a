"""Comments and authors of an advice: in pages and REST, deleted by their author or an admin, never behind a link."""

from typing import Any

import pytest
from django.test import Client

from advisor.api import tokens
from advisor.models import Advice, Comment
from tests import links, sample_advice
from tests.people import member

pytestmark = pytest.mark.django_db
TEXT = "Ask <b>Acme</b> for a quote."


def signed_in(name: str, role: str = "planner") -> Client:
    client = Client()
    client.force_login(member(name, role))
    return client


def test_a_comment_is_shown_with_author_and_time_as_plain_text_to_members_alone() -> None:
    advice, ada = sample_advice.advice(), signed_in("ada")
    page = f"/advice/{advice.pk}"
    ada.post(f"{page}/comments", {"text": TEXT})
    comment = Comment.objects.get()
    text = signed_in("eve", "viewer").get(page).content.decode()
    assert "Ask &lt;b&gt;Acme&lt;/b&gt;" in text and "<strong>ada</strong>" in text
    assert f"{comment.made_at:%Y-%m-%d %H:%M} UTC" in text
    assert "Acme" not in Client().get(f"/s/{links.shared(ada, advice)}").content.decode()


@pytest.mark.parametrize("text", ["", " \n", "x" * 4001])
def test_an_empty_or_endless_one_is_not_kept(text: str) -> None:
    advice = sample_advice.advice()
    signed_in("ada").post(f"/advice/{advice.pk}/comments", {"text": text})
    assert not Comment.objects.exists()


def test_its_author_and_admins_delete_it() -> None:
    advice, ada = sample_advice.advice(), signed_in("ada")
    others = {"eve": signed_in("eve"), "root": signed_in("root", "admin")}
    for browser, status in ((others["eve"], 403), (ada, 302), (others["root"], 302)):
        ada.post(f"/advice/{advice.pk}/comments", {"text": TEXT})
        path = f"/advice/{advice.pk}/comments/{Comment.objects.latest('pk').pk}/delete"
        assert (path in browser.get(f"/advice/{advice.pk}").content.decode()) is (status == 302)
        assert browser.post(path).status_code == status
    assert Comment.objects.count() == 1  # that of eve's attempt


def test_tokens_read_and_add_comments() -> None:
    path = f"/api/v1/advice/{sample_advice.advice().pk}/comments"

    def call(scope: str, method: str, path: str = path, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {tokens.make('ci', scope)[0]}"}
        return getattr(Client(), method)(path, body, content_type="application/json", headers=headers)

    assert call("read", "post", body={"text": TEXT}).status_code == 403
    made = call("submit", "post", body={"text": TEXT})
    assert made.status_code == 201 and made.json()["made_by"] == "token ci"
    assert [each["text"] for each in call("read", "get").json()["results"]] == [TEXT]
    assert call("submit", "post", body={"text": " "}).status_code == 400
    one = f"{path}/{made.json()['id']}"
    assert [call(scope, "delete", one).status_code for scope in ("submit", "admin", "admin")] == [403, 204, 404]


def test_an_advice_names_who_asked(woken: list[str]) -> None:
    first, ada = sample_advice.advice(), signed_in("ada")
    ada.post(f"/advice/{first.pk}/rescore")
    again = Advice.objects.get(supersedes=first)
    assert (first.made_by, again.made_by) == ("", "ada")
    assert ada.get(f"/api/v1/advice/{again.pk}").json()["made_by"] == "ada"
    assert '<span class="sub">ada</span>' in ada.get("/advice").content.decode()
