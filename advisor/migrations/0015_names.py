"""Names the questions that have none. The previous version may run meanwhile."""

from django.db import migrations

from advisor.workload import named


def name(apps, schema_editor):
    Workload = apps.get_model("advisor", "Workload")
    for row in Workload.objects.filter(name="untitled").iterator():
        spec = named(row.spec)
        Workload.objects.filter(pk=row.pk).update(name=spec["name"], spec=spec)


class Migration(migrations.Migration):
    dependencies = [("advisor", "0014_turns_and_hashed_links")]
    operations = [migrations.RunPython(name, migrations.RunPython.noop, elidable=True)]
