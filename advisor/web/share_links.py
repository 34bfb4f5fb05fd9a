"""Links that show one answer to anyone who has them. Only a hash is stored: a link is shown once, when it is made."""

from datetime import timedelta

from django.db.models import QuerySet

from advisor.models import Advice, Share, share_token
from catalog import clock
from catalog.accounts import hashed

PREFIX = 6  # characters of a token that are stored in clear, to tell links apart


def live(links: "QuerySet[Share]") -> "QuerySet[Share]":
    """Those that have not expired."""
    return links.filter(expires_at__gt=clock.now())


def make(advice: Advice, days: int, made_by: str) -> str:
    """The token of a new link."""
    hash_rest()
    token = share_token()
    Share.objects.create(
        organisation=advice.organisation,
        advice=advice,
        token_hash=hashed(token),
        token_prefix=token[:PREFIX],
        expires_at=clock.read() + timedelta(days=days),
        made_by=made_by,
    )
    return token


def by_token(token: str) -> Share | None:
    """The live link with this token."""
    hash_rest()
    links = live(Share.objects.select_related("advice__workload").defer("advice__result", "advice__snapshot"))
    return links.filter(token_hash=hashed(token)).first()


def hash_rest() -> None:
    """Hashes the tokens of links that processes of the previous version make while they still run."""
    for row in Share.objects.filter(token_hash=None).only("token"):
        values = {"token_hash": hashed(row.token), "token_prefix": row.token[:PREFIX], "token": share_token()}
        Share.objects.filter(pk=row.pk, token_hash=None).update(**values)
