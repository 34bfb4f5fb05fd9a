"""Builds agent.pyz, the agent as one file: `python -m probes.agent.build agent.pyz`.

The build is reproducible: files sorted by name, a fixed date, no compression, only this package. An operator can
build it from the repository and compare checksums.
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent
SHEBANG: Final = b"#!/usr/bin/env python3\n"
START: Final = "import runpy\n\nrunpy.run_module('probes.agent', run_name='__main__', alter_sys=True)\n"
FIXED_DATE: Final = (1980, 1, 1, 0, 0, 0)


def contents() -> Iterator[tuple[str, bytes]]:
    """The name and the content of each file in the archive."""
    yield "__main__.py", START.encode()
    yield "probes/__init__.py", b""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield f"probes/agent/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()


def archive() -> bytes:
    """The bytes of agent.pyz. Works only from source files, not from inside another archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as file:
        for name, body in contents():
            entry = zipfile.ZipInfo(name, FIXED_DATE)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            file.writestr(entry, body)
    return SHEBANG + packed.getvalue()


def lines(server: str, token: str, body: bytes) -> str:
    """The two commands for the operator: download, then verify the checksum and run."""
    checksum = hashlib.sha256(body).hexdigest()
    return (
        f"curl -fsSO {server}/agent.pyz\n"
        f'echo "{checksum}  agent.pyz" | sha256sum -c && python3 agent.pyz run --server {server} --token {token}'
    )


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1 or argv[0].startswith("-"):
        print("usage: python -m probes.agent.build OUT.pyz", file=sys.stderr)
        return 2
    body = archive()
    Path(argv[0]).write_bytes(body)
    print(f"{hashlib.sha256(body).hexdigest()}  {argv[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
