from django.db import migrations


def create(apps, schema_editor):
    apps.get_model("catalog", "Organisation").objects.get_or_create(slug="default", defaults={"name": "Default"})


class Migration(migrations.Migration):
    dependencies = [("catalog", "0002_prices_and_active_parameters")]
    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
