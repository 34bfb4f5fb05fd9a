from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandParser
from django.core.validators import validate_email
from django.db import transaction
from django.urls import reverse

from advisor.accounts import emails
from catalog.accounts import invitations, organizations
from catalog.management.errors import BadInput
from catalog.models import Organisation, Role

BY = "manage.py"


class Command(BaseCommand):
    help = "Creates an organization, and invites its first admin: by e-mail, and with a link that is printed once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", help="short name; of an existing organization, to invite another admin")
        parser.add_argument("--name", default="", help="display name; default: the slug")
        parser.add_argument(
            "--admin",
            metavar="EMAIL",
            help="e-mail address of the admin to invite; without it, members join through groups of single sign-on",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["admin"] is not None:
                validate_email(options["admin"])
            with transaction.atomic():
                organisation = Organisation.objects.filter(slug=options["slug"]).first()
                if organisation is None:
                    organisation = organizations.create_organisation(options["slug"], options["name"], BY)
                elif options["admin"] is None:
                    raise BadInput(f"{organisation.slug} exists already; give --admin EMAIL to invite another admin")
                if options["admin"] is None:
                    self.stdout.write(f"{organisation.name}: created without an invitation.")
                    return
                token, row = invitations.invite(organisation, options["admin"], Role.ADMIN, BY)
        except ValidationError:
            raise BadInput(f"--admin: {options['admin']!r} is not an e-mail address") from None
        except organizations.Refused as error:
            raise BadInput(str(error)) from None
        url = emails.link(reverse("join", args=[token]))
        sent = emails.send_invitation(row, url)
        self.stdout.write(f"{organisation.name}: {row.email} is invited as admin until {row.expires_at:%Y-%m-%d}.")
        self.stdout.write(f"{'An e-mail was sent' if sent else 'No e-mail was sent'}. The link is: {url}")
