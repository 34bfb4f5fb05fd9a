"""The packed columns take the place of the others; an option's details are read from its answer."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("advisor", "0007_pack_answers")]

    operations = [
        migrations.RemoveField(model_name="advice", name="snapshot"),
        migrations.RemoveField(model_name="advice", name="result"),
        migrations.RenameField(model_name="advice", old_name="packed_snapshot", new_name="snapshot"),
        migrations.RenameField(model_name="advice", old_name="packed_result", new_name="result"),
        migrations.RemoveField(model_name="option", name="detail"),
        migrations.AddConstraint(
            model_name="advice",
            constraint=models.CheckConstraint(
                condition=~models.Q(state="done") | models.Q(result__isnull=False), name="done_has_a_result"
            ),
        ),
    ]
