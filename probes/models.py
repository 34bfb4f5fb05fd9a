"""Agents that measure machines, and what they are asked to do."""

from django.db import models
from django.utils import timezone

from catalog.models import Organisation


class Agent(models.Model):
    """A registered machine; its token is stored hashed."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    token_hash = models.CharField(max_length=64, unique=True)
    labels = models.JSONField(default=dict, blank=True)
    inventory = models.JSONField(default=dict, blank=True)
    registered_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
