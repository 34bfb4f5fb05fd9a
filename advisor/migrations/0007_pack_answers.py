"""Packs the answers of earlier versions, a few in each transaction. Stopped half-way, it goes on where it was."""

from typing import Any

from django.db import migrations, transaction
from django.db.models import Q

BATCH = 20


def pack(apps: Any, schema_editor: Any) -> None:
    advice = apps.get_model("advisor", "Advice").objects.using(schema_editor.connection.alias)
    option = apps.get_model("advisor", "Option").objects.using(schema_editor.connection.alias)
    waiting = advice.filter(Q(snapshot__isnull=False) | Q(result__isnull=False)).order_by("pk")
    pks = list(waiting.values_list("pk", flat=True))
    for start in range(0, len(pks), BATCH):
        with transaction.atomic(using=schema_editor.connection.alias):
            for row in advice.filter(pk__in=pks[start : start + BATCH]).only("snapshot", "result"):
                for r in (row.result or {}).get("recommendations", []):
                    option.filter(advice=row.pk, rank=r["rank"]).update(label=r.get("label", ""))
                advice.filter(pk=row.pk).update(
                    packed_snapshot=row.snapshot, packed_result=row.result, snapshot=None, result=None
                )


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("advisor", "0006_packed_columns")]

    operations = [migrations.RunPython(pack)]
