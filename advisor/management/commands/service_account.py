from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.accounts import organizations, service_accounts
from catalog.management.errors import BadInput
from catalog.models import DEFAULT_ORGANISATION, Organisation, Role, ServiceAccount

BY = "manage.py"


class Command(BaseCommand):
    help = "Manages service accounts, to which tokens of programs belong: make, list, role, disable, enable and delete."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--organization", metavar="SLUG", default=DEFAULT_ORGANISATION, help="default: the default organization"
        )
        actions = parser.add_subparsers(
            dest="do", required=True, metavar="make | list | role | disable | enable | delete"
        )
        actions.add_parser("list", help="list the service accounts of the organization")
        for name, text in (
            ("make", "create one; manage.py token make NAME --service-account NAME creates its token"),
            ("role", "change the role"),
            ("disable", "refuse its tokens"),
            ("enable", "accept its tokens again"),
            ("delete", "delete it with its tokens"),
        ):
            part = actions.add_parser(name, help=text)
            part.add_argument("name")
            if name in ("make", "role"):
                part.add_argument("role", choices=Role.values)

    def handle(self, *args: Any, **options: Any) -> None:
        owner, what = organisation(options["organization"]), options["do"]
        if what == "list":
            rows = list(ServiceAccount.objects.filter(organisation=owner))
            for row in rows:
                self.stdout.write(f"{row.name}  {row.role}{'  disabled' if row.disabled_at else ''}")
            if not rows:
                self.stdout.write("No service accounts. Create one with manage.py service_account make NAME ROLE")
            return
        if what == "make":
            try:
                service_accounts.create(owner, options["name"], options["role"], BY)
            except organizations.Refused as error:
                raise BadInput(str(error)) from None
        elif what == "delete":
            service_accounts.delete(one(owner, options["name"]), BY)
        elif what == "role":
            service_accounts.change(one(owner, options["name"]), BY, role=options["role"])
        else:
            service_accounts.change(one(owner, options["name"]), BY, disabled=what == "disable")
        self.stdout.write(
            f"{options['name']}: {'made' if what == 'make' else 'changed' if what == 'role' else what + 'd'}"
        )


def organisation(slug: str) -> Organisation:
    """BadInput: there is no such organization."""
    found = Organisation.objects.filter(slug=slug).first()
    if found is None:
        known = ", ".join(Organisation.objects.order_by("slug").values_list("slug", flat=True))
        raise BadInput(f"no organization {slug!r}; choose one of {known}")
    return found


def one(owner: Organisation, name: str) -> ServiceAccount:
    """BadInput: the organization has no service account of this name."""
    found = ServiceAccount.objects.filter(organisation=owner, name=name).first()
    if found is None:
        raise BadInput(f"{owner.slug} has no service account {name!r}; see manage.py service_account list")
    return found
