from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from advisor import deletion
from advisor.api import tokens
from advisor.management.commands import service_account
from advisor.models import ApiToken
from catalog.management.errors import BadInput
from catalog.models import DEFAULT_ORGANISATION


class Command(BaseCommand):
    help = "Manages API tokens: make (shown once), list, rotate, revoke and delete."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="do", required=True, metavar="make | list | rotate | revoke | delete")
        make = actions.add_parser("make", help="create a token and print it once")
        make.add_argument("name", help="name of the user or client")
        make.add_argument("--scope", choices=ApiToken.Scope.values, default="read", help="default: %(default)s")
        make.add_argument("--days", type=int, default=settings.TOKEN_DAYS, help="lifetime; default: %(default)s")
        make.add_argument("--organization", metavar="SLUG", help="default: the default organization")
        make.add_argument(
            "--service-account",
            metavar="NAME",
            help="the service account of the organization that the token belongs to",
        )
        actions.add_parser("list", help="list all tokens with scope, status and last use")
        for name, text in (
            ("rotate", "create a successor; the old token works for another hour"),
            ("revoke", "end the token now"),
            ("delete", "end the token now and delete its record; also for expired tokens"),
        ):
            actions.add_parser(name, help=text).add_argument(
                "prefix", help="the first characters, as `list` shows them"
            )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["do"] == "list":
            self.list_all()
        elif options["do"] == "make":
            try:
                owner = service_account.organisation(options["organization"] or DEFAULT_ORGANISATION)
                name = options["service_account"]
                holder = service_account.one(owner, name) if name else None
                token, _ = tokens.make(options["name"], options["scope"], options["days"], "manage.py", owner, holder)
            except ValueError as error:
                raise BadInput(str(error)) from None
            self.stdout.write(token)
        elif options["do"] == "rotate":
            self.stdout.write(tokens.rotate(one(options["prefix"]))[0])
        elif options["do"] == "delete":
            row = one(options["prefix"], ended=True)
            deletion.delete_token(row, "manage.py")
            self.stdout.write(f"{row.name}: deleted")
        else:
            row = one(options["prefix"])
            tokens.revoke(row, "manage.py")
            self.stdout.write(f"{row.name}: revoked")

    def list_all(self) -> None:
        rows = list(ApiToken.objects.select_related("user", "service_account"))
        for row in rows:
            last = f"used {row.last_used_at:%Y-%m-%d %H:%M}" if row.last_used_at else "never used"
            holder = f" ({row.user or row.service_account})" if row.user or row.service_account else ""
            ends = f"{row.expires_at:%Y-%m-%d}"
            self.stdout.write(
                f"{row.token_prefix}…  {row.status:8} {row.scope:7} until {ends}  {last:22}  {row.name}{holder}"
            )
        if not rows:
            self.stdout.write("No tokens. Create one with manage.py token make NAME --scope read|submit|prices|admin")


def one(prefix: str, ended: bool = False) -> ApiToken:
    """The only live token with this prefix; `ended` includes expired and revoked ones. Raises BadInput."""
    rows = ApiToken.objects.filter(token_prefix__startswith=prefix[:12])
    matches = [row for row in rows if ended or row.status == "live"]
    if len(matches) != 1 or len(prefix) < 6:
        kind = "" if ended else "live "
        raise BadInput(f"{len(matches)} {kind}tokens start with {prefix!r}; see manage.py token list")
    return matches[0]
