"""Columns for packed answers, beside those that they replace."""

import django.db.models.deletion
from django.db import migrations, models

import advisor.stored


class Migration(migrations.Migration):
    dependencies = [("advisor", "0005_newest_first")]

    operations = [
        # Taken away while the old column is emptied; 0008 puts it on the new one.
        migrations.RemoveConstraint(model_name="advice", name="done_has_a_result"),
        migrations.AlterField(
            model_name="advice",
            name="supersedes",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="successors",
                to="advisor.advice",
            ),
        ),
        migrations.AddField(
            model_name="advice", name="result_version", field=models.PositiveSmallIntegerField(default=1)
        ),
        migrations.AddField(
            model_name="advice",
            name="packed_snapshot",
            field=advisor.stored.PackedJSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="advice", name="packed_result", field=advisor.stored.PackedJSONField(blank=True, null=True)
        ),
        migrations.AddIndex(
            model_name="advice",
            index=models.Index(fields=["state", "finished_at"], name="oldest_finished_advice"),
        ),
        migrations.AddField(model_name="option", name="label", field=models.TextField(blank=True, default="")),
    ]
