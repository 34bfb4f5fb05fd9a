"""Pages of answers as text."""

import re

from django.test import Client

NAVIGATION = re.compile(r'href="\?section=(\w+)#sections"')


def every_section(client: Client, path: str, **headers: str) -> str:
    """The page of an answer or of an option, and the pages of its other sections; another page by itself."""
    response = client.get(path, headers=headers)
    assert response.status_code == 200, path
    first = response.content.decode()
    others = [] if "?" in path else NAVIGATION.findall(first)[1:]
    return "\n".join([first, *(client.get(f"{path}?section={name}", headers=headers).text for name in others)])
