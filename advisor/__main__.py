"""`assay`, and `python -m advisor`: the commands of manage.py, also of an installed package."""

import os
import sys
from importlib.metadata import version


def main() -> None:
    if sys.argv[1:] in (["--version"], ["version"]):
        print(f"Assay {version('assay')}")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
