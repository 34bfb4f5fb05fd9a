from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('advisor', '0009_calibration_ids'),
    ]

    operations = [
        migrations.AlterField(
            model_name='apitoken',
            name='scope',
            field=models.CharField(choices=[('read', 'Read'), ('submit', 'Submit'), ('prices', 'Prices'), ('admin', 'Admin')], max_length=12),
        ),
    ]
