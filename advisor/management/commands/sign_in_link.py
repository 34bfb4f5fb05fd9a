from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandParser
from django.urls import reverse

from advisor.accounts import emails, sign_in_link
from catalog.management.errors import BadInput


class Command(BaseCommand):
    help = "Prints a link with which a staff account signs in once, without a password or single sign-on."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="user name of a staff account; manage.py createsuperuser creates one")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["name"]).first()
        if user is None or not (user.is_active and user.is_staff):
            raise BadInput(
                f"{options['name']}: there is no active staff account of this name; create one with "
                "manage.py createsuperuser"
            )
        url = emails.link(reverse("sign-in-link", args=[sign_in_link.token_of(user)]))
        self.stdout.write(f"{url}\nIt works once, within {sign_in_link.MINUTES} minutes.")
