from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor import deletion
from advisor.api import tokens
from advisor.models import ApiToken
from catalog.management.errors import BadInput


class Command(BaseCommand):
    help = "Tokens for tools that call the API: make one (shown once), list, rotate, revoke or delete one."

    def add_arguments(self, parser: CommandParser) -> None:
        ways = parser.add_subparsers(dest="do", required=True, metavar="make | list | rotate | revoke")
        make = ways.add_parser("make", help="prints a new token, once")
        make.add_argument("name", help="who or what will use it")
        make.add_argument("--scope", choices=ApiToken.Scope.values, default="read", help="default: %(default)s")
        make.add_argument("--days", type=int, default=tokens.DAYS, help="until it ends; default: %(default)s")
        ways.add_parser("list", help="every token with its scope, state and last use; never the token itself")
        for name, text in (
            ("rotate", "a successor; the former works an hour more"),
            ("revoke", "it ends now"),
            ("delete", "it ends now, and its row is deleted; also for one that ended"),
        ):
            ways.add_parser(name, help=text).add_argument("prefix", help="its first letters, as `list` shows them")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["do"] == "list":
            self.list_all()
        elif options["do"] == "make":
            try:
                token, _ = tokens.make(options["name"], options["scope"], options["days"], "manage.py")
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
            tokens.revoke(row)
            self.stdout.write(f"{row.name}: revoked, its next call is refused")

    def list_all(self) -> None:
        rows = list(ApiToken.objects.all())
        for row in rows:
            last = f"used {row.last_used_at:%Y-%m-%d %H:%M}" if row.last_used_at else "never used"
            ends = f"{row.expires_at:%Y-%m-%d}"
            self.stdout.write(f"{row.token_prefix}…  {row.status:8} {row.scope:7} until {ends}  {last:22}  {row.name}")
        if not rows:
            self.stdout.write("No token was made: manage.py token make NAME --scope read|submit|admin")


def one(prefix: str, ended: bool = False) -> ApiToken:
    """The one live token that begins with these letters; `ended`: one that no longer works counts, too."""
    rows = ApiToken.objects.filter(token_prefix__startswith=prefix[:12])
    found = [row for row in rows if ended or row.status == "live"]
    if len(found) != 1 or len(prefix) < 6:
        kind = "" if ended else "live "
        raise BadInput(f"{len(found)} {kind}tokens begin with {prefix!r}: manage.py token list shows them")
    return found[0]
