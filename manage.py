#!/usr/bin/env python
"""Assay's commands: see README.md."""

import os
import sys

from advisor.__main__ import execute

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")  # editors and scripts look for it here
    execute(sys.argv)
