import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    """When a price was recorded (of the rows that are there: not known), speeds of endpoints, licences of frameworks."""

    dependencies = [("catalog", "0007_scored_rows")]

    operations = [
        migrations.AddField("apiprice", "recorded_at", models.DateTimeField(default=None, editable=False, null=True)),
        migrations.AddField("discount", "recorded_at", models.DateTimeField(default=None, editable=False, null=True)),
        migrations.AddField("price", "recorded_at", models.DateTimeField(default=None, editable=False, null=True)),
        migrations.AddField("supportlicence", "recorded_at", models.DateTimeField(default=None, editable=False, null=True)),
        migrations.AlterField(
            "apiprice", "recorded_at", models.DateTimeField(default=django.utils.timezone.now, editable=False, null=True)
        ),
        migrations.AlterField(
            "discount", "recorded_at", models.DateTimeField(default=django.utils.timezone.now, editable=False, null=True)
        ),
        migrations.AlterField(
            "price", "recorded_at", models.DateTimeField(default=django.utils.timezone.now, editable=False, null=True)
        ),
        migrations.AlterField(
            "supportlicence", "recorded_at", models.DateTimeField(default=django.utils.timezone.now, editable=False, null=True)
        ),
        migrations.AddField("apiprice", "output_tokens_per_s", models.FloatField(blank=True, null=True)),
        migrations.AddField("apiprice", "speed_source", models.TextField(blank=True, default=""), preserve_default=False),
        migrations.RemoveConstraint("supportlicence", "one_licence_a_day"),
        migrations.AddField(
            "supportlicence", "framework", models.CharField(blank=True, default="", max_length=60), preserve_default=False
        ),
        migrations.AlterField("supportlicence", "vendor", models.CharField(blank=True, max_length=40)),
        migrations.AddConstraint(
            "supportlicence",
            models.UniqueConstraint(
                fields=("organisation", "name", "vendor", "framework", "as_of"), name="one_licence_a_day"
            ),
        ),
    ]
