from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0031_identities_quotas_and_owned_rows")]

    operations = [
        migrations.AddField(
            model_name="retention",
            name="keep_studies_days",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
    ]
