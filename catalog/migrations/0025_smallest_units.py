"""How many chips are sold together: stored with each price, and known for each seller and chip."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F


def instances_are_units(apps, schema_editor):
    """An instance is its own smallest unit. Of prices per chip the unit is unknown until the fixtures are loaded."""
    prices = apps.get_model("catalog", "Price").objects
    prices.exclude(unit="chip").exclude(instance__contains="(per GPU)").update(smallest_unit_accelerators=F("accelerators"))
    prices.filter(term="purchase").update(smallest_unit_accelerators=F("accelerators"))


class Migration(migrations.Migration):

    dependencies = [("catalog", "0024_saved_views")]

    operations = [
        migrations.AddField(
            model_name="price",
            name="smallest_unit_accelerators",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="price",
            name="smallest_unit_source",
            field=models.TextField(blank=True, default=""),
            preserve_default=False,
        ),
        migrations.CreateModel(
            name="SmallestUnit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("provider", models.CharField(max_length=60)),
                ("accelerators", models.PositiveIntegerField(blank=True, null=True)),
                ("source", models.TextField()),
                ("as_of", models.DateField()),
                (
                    "accelerator",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="smallest_units",
                        to="catalog.accelerator",
                    ),
                ),
            ],
            options={"ordering": ["provider", "accelerator"]},
        ),
        migrations.AddConstraint(
            model_name="smallestunit",
            constraint=models.UniqueConstraint(fields=("provider", "accelerator"), name="one_smallest_unit"),
        ),
        migrations.RunPython(instances_are_units, migrations.RunPython.noop),
    ]
