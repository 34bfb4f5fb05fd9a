"""Adds columns only, and empties no column that the previous version needs to start, so that it may run meanwhile.

The tokens of links are replaced by random ones after they are hashed. While processes of the previous version still run,
they do not know existing links; links that they make are hashed when they are first opened, or by the sweep.
"""

import hashlib
import secrets

import django.contrib.auth
from django.db import migrations, models
from django.db.models import Min


def hash_links(apps, schema_editor):
    Share = apps.get_model("advisor", "Share")
    for row in Share.objects.filter(token_hash=None).only("token").iterator():
        Share.objects.filter(pk=row.pk).update(
            token_hash=hashlib.sha256(row.token.encode()).hexdigest(),
            token_prefix=row.token[:6],
            token=secrets.token_urlsafe(24),
        )


def mark_tokens(apps, schema_editor):
    """Tokens made before the oldest account, which is when the installation had none."""
    User = apps.get_model(*django.contrib.auth.get_user_model()._meta.label.split("."))
    first = User.objects.aggregate(first=Min("date_joined"))["first"]
    tokens = apps.get_model("advisor", "ApiToken").objects.all()
    (tokens if first is None else tokens.filter(made_at__lt=first)).update(before_accounts=True)


class Migration(migrations.Migration):
    dependencies = [
        ("advisor", "0013_load_test_comparable"),
        migrations.swappable_dependency("auth.User"),
    ]

    operations = [
        migrations.AddField("advice", "claim", models.CharField(blank=True, db_default="", default="", max_length=32)),
        migrations.AddIndex("advice", models.Index(fields=["started_at"], name="newest_turns")),
        migrations.AddField(
            "apitoken", "before_accounts", models.BooleanField(db_default=False, default=False)
        ),
        migrations.AddField(
            "share", "token_hash", models.CharField(editable=False, max_length=64, null=True, unique=True)
        ),
        migrations.AddField(
            "share", "token_prefix", models.CharField(blank=True, db_default="", default="", max_length=16)
        ),
        migrations.RunPython(hash_links, migrations.RunPython.noop),
        migrations.RunPython(mark_tokens, migrations.RunPython.noop),
    ]
