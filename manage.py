#!/usr/bin/env python
"""Assay's commands: see README.md."""

import sys

from advisor.__main__ import execute

if __name__ == "__main__":
    execute(sys.argv)
