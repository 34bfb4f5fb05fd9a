import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0030_evidence'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Identity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('issuer', models.CharField(max_length=200)),
                ('subject', models.CharField(max_length=255)),
                ('made_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name_plural': 'identities',
            },
        ),
        migrations.CreateModel(
            name='Quota',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('max_waiting_answers', models.PositiveIntegerField(blank=True, null=True)),
                ('max_answers_per_day', models.PositiveIntegerField(blank=True, null=True)),
                ('max_estimates_per_day', models.PositiveIntegerField(blank=True, null=True)),
                ('max_machines', models.PositiveIntegerField(blank=True, null=True)),
                ('max_stored_answers', models.PositiveIntegerField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Retention',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('keep_advice_days', models.PositiveIntegerField(blank=True, null=True)),
                ('keep_failed_days', models.PositiveIntegerField(blank=True, null=True)),
                ('keep_shares_days', models.PositiveIntegerField(blank=True, null=True)),
                ('keep_load_tests_days', models.PositiveIntegerField(blank=True, null=True)),
                ('keep_tokens_days', models.PositiveIntegerField(blank=True, null=True)),
                ('keep_audit_days', models.PositiveIntegerField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='ServiceAccount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('role', models.CharField(choices=[('viewer', 'viewer'), ('planner', 'planner'), ('operator', 'operator'), ('admin', 'admin')], max_length=12)),
                ('made_by', models.CharField(blank=True, max_length=150)),
                ('made_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('disabled_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Usage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('answers', models.PositiveIntegerField(default=0)),
                ('estimates', models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.AddField(
            model_name='calibration',
            name='organisation',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='catalog.organisation'),
        ),
        migrations.AddField(
            model_name='historicalservedmodel',
            name='organisation',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='catalog.organisation'),
        ),
        migrations.AddField(
            model_name='membership',
            name='by_group',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='servedmodel',
            name='organisation',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='catalog.organisation'),
        ),
        migrations.AlterField(
            model_name='historicalservedmodel',
            name='hf_id',
            field=models.CharField(max_length=200),
        ),
        migrations.AlterField(
            model_name='servedmodel',
            name='hf_id',
            field=models.CharField(max_length=200),
        ),
        migrations.AlterField(
            model_name='servedmodel',
            name='slug',
            field=models.SlugField(max_length=120),
        ),
        migrations.AddConstraint(
            model_name='servedmodel',
            constraint=models.UniqueConstraint(condition=models.Q(('organisation', None)), fields=('slug',), name='one_shared_slug'),
        ),
        migrations.AddConstraint(
            model_name='servedmodel',
            constraint=models.UniqueConstraint(condition=models.Q(('organisation', None)), fields=('hf_id',), name='one_shared_hf_id'),
        ),
        migrations.AddConstraint(
            model_name='servedmodel',
            constraint=models.UniqueConstraint(fields=('organisation', 'slug'), name='one_own_slug'),
        ),
        migrations.AddConstraint(
            model_name='servedmodel',
            constraint=models.UniqueConstraint(fields=('organisation', 'hf_id'), name='one_own_hf_id'),
        ),
        migrations.AddField(
            model_name='identity',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='identities', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='quota',
            name='organisation',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='quota', to='catalog.organisation'),
        ),
        migrations.AddField(
            model_name='retention',
            name='organisation',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='retention', to='catalog.organisation'),
        ),
        migrations.AddField(
            model_name='serviceaccount',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='service_accounts', to='catalog.organisation'),
        ),
        migrations.AddField(
            model_name='usage',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='usage', to='catalog.organisation'),
        ),
        migrations.AddConstraint(
            model_name='identity',
            constraint=models.UniqueConstraint(fields=('issuer', 'subject'), name='one_account_an_identity'),
        ),
        migrations.AddConstraint(
            model_name='serviceaccount',
            constraint=models.UniqueConstraint(fields=('organisation', 'name'), name='one_service_account_a_name'),
        ),
        migrations.AddConstraint(
            model_name='usage',
            constraint=models.UniqueConstraint(fields=('organisation', 'day'), name='one_usage_a_day'),
        ),
    ]
