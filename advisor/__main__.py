"""`assay`, and `python -m advisor`: the commands of manage.py, also of an installed package."""

import os
import sys
from collections.abc import Callable, Sequence

MISSING = ("42P01", "42703")  # SQLSTATE of PostgreSQL: undefined table, undefined column


def main() -> None:
    if sys.argv[1:] in (["--version"], ["version"]):
        from importlib.metadata import version  # slower to import than the rest of a command's start

        print(f"Assay {version('assay')}")
        return
    execute(sys.argv)


def execute(argv: Sequence[str]) -> None:
    """Runs a command. A database that is not prepared or cannot be reached ends it with 1 and says what to do."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    if argv[1:2] == ["advise"]:
        from advisor.management.commands.advise import Command

        run: Callable[[list[str]], None] = Command().run_from_argv  # it loads the tables when it needs them
    else:
        from django.core.management import execute_from_command_line as run
    from django.db import OperationalError, ProgrammingError

    try:
        run(list(argv))
    except (OperationalError, ProgrammingError) as error:
        if "--traceback" in argv or not (what := remedy(error)):
            raise
        sys.exit(f"CommandError: {what}")


def remedy(error: Exception) -> str:
    """What is wrong with the database and what to do; empty for any other error."""
    state = getattr(error.__cause__, "sqlstate", "")
    if state in MISSING or str(error).startswith(("no such table", "no such column")):
        return "The database is not prepared for this version; run manage.py prepare (or assay prepare) first."
    if state is None and "connection" in str(error):
        return f"The database does not answer ({str(error).splitlines()[0]}); start it, or correct DATABASE_URL."
    return ""


if __name__ == "__main__":
    main()
