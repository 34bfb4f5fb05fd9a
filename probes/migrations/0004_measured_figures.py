from django.db import migrations


def note(apps, schema_editor):
    """Which figures of the calibrations that are there came from machines: those of the fit of their result."""
    for result in apps.get_model("probes", "Result").objects.exclude(calibration=None).exclude(fit=None):
        row = result.calibration
        row.measured = sorted({*row.measured, *result.fit} & set(row.values))
        row.save(update_fields=["measured"])


class Migration(migrations.Migration):
    dependencies = [("probes", "0003_tokens"), ("catalog", "0010_measured_figures")]

    operations = [migrations.RunPython(note, migrations.RunPython.noop)]
