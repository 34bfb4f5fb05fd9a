from django.conf import settings
from django.db import migrations


def add_members(apps, schema_editor):
    """Existing accounts join the default organization: staff as admins, others as planners."""
    users = list(apps.get_model("auth", "User").objects.all())
    if not users:
        return
    organisation, _ = apps.get_model("catalog", "Organisation").objects.get_or_create(
        slug="default", defaults={"name": "Default"}
    )
    membership = apps.get_model("catalog", "Membership")
    for user in users:
        role = "admin" if user.is_staff or user.is_superuser else "planner"
        membership.objects.get_or_create(user_id=user.pk, organisation=organisation, defaults={"role": role})


class Migration(migrations.Migration):
    dependencies = [("catalog", "0022_accounts"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]
    operations = [migrations.RunPython(add_members, migrations.RunPython.noop)]
