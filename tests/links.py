"""Links to answers, as their owners see them: once."""

import re

from django.test import Client

from advisor.models import Advice


def shared(client: Client, advice: Advice, **given: str) -> str:
    """The token of a new link to this answer, from the page that shows it."""
    page = client.post(f"/advice/{advice.pk}/share", given, follow=True).content.decode()
    found = re.search(r'<a href="http://testserver/s/([\w-]+)">', page)
    assert found
    return found[1]
