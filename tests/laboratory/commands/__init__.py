"""Commands of manage.py that only a checkout has; `advisor.management.laboratory` finds them here."""
