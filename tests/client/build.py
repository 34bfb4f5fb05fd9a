"""`python -m tests.client.build`: the clients of the REST API, generated from its description, in build/clients.

python/: the package assay_client, with advisor/client and what openapi-python-client generates. typescript/: types by
openapi-typescript and .ci/clients/index.ts, checked and compiled by tsc; left out where there is no npm.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import django
from django.core.management import call_command

from advisor.engine import ENGINE_VERSION

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "advisor" / "client"
PROJECT = f"""\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "assay-client"
version = "{ENGINE_VERSION}"
description = "Client of Assay's REST API"
license = "Apache-2.0"
requires-python = ">=3.11"
dependencies = ["httpx>=0.28,<1", "attrs>=22.2", "python-dateutil>=2.8,<3"]

[project.optional-dependencies]
frames = ["pandas>=2"]

[tool.setuptools.packages.find]
include = ["assay_client*"]

[tool.setuptools.package-data]
assay_client = ["py.typed"]
"""
FACE = '''"""Client of Assay's REST API: Assay, AsyncAssay, and the generated classes in assay_client.generated."""

from .calls import Assay, AssayError, AsyncAssay, Problem
from .shown import Answer, Frontier

__all__ = ["Answer", "Assay", "AssayError", "AsyncAssay", "Frontier", "Problem"]
'''


def run(*command: str | Path, folder: Path) -> None:
    """CalledProcessError: it failed; its output is on stderr."""
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    if done.returncode or "has resulted in the removal of" in done.stdout + done.stderr:
        sys.stderr.write(done.stdout + done.stderr)
        raise subprocess.CalledProcessError(done.returncode or 1, done.args)


def hand_written(to: Path) -> None:
    """The package without what is generated."""
    package = to / "assay_client"
    package.mkdir(parents=True)
    (to / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text(FACE)
    (package / "py.typed").write_text("")
    for name in ("calls.py", "shown.py"):
        shutil.copy(OURS / name, package / name)


def python(schema: Path, to: Path) -> None:
    """An installable package."""
    shutil.rmtree(to, ignore_errors=True)
    hand_written(to)
    (to / "config.yaml").write_text("post_hooks: []\n")
    generator = Path(sys.executable).with_name("openapi-python-client")
    options = ("--path", schema, "--meta", "none", "--config", "config.yaml", "--output-path", "assay_client/generated")
    run(generator, "generate", *options, folder=to)
    (to / "config.yaml").unlink()


def typescript(schema: Path, to: Path) -> None:
    """An npm package; node_modules of an earlier build is kept."""
    (to / "src").mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "package-lock.json", "tsconfig.json"):
        shutil.copy(ROOT / ".ci" / "clients" / file, to / file)
    shutil.copy(ROOT / ".ci" / "clients" / "index.ts", to / "src" / "index.ts")
    run("npm", "ci", "--no-fund", "--no-audit", "--ignore-scripts", folder=to)
    run(
        "node_modules/.bin/openapi-typescript",
        schema,
        "--output",
        "src/schema.ts",
        "--default-non-nullable",
        "false",
        folder=to,
    )
    run("node_modules/.bin/tsc", folder=to)


def main(to: Path) -> None:
    django.setup()
    to.mkdir(parents=True, exist_ok=True)
    schema = to / "openapi.yaml"
    call_command("spectacular", "--file", str(schema))
    python(schema, to / "python")
    print(f"{to / 'python'}: pip install it, then `from assay_client import Assay`")
    if shutil.which("npm"):
        typescript(schema, to / "typescript")
        print(f'{to / "typescript"}: npm install it, then `import {{ Assay }} from "assay-client"`')
    else:
        print("no npm here: the TypeScript client was left out")


if __name__ == "__main__":
    import os

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    main(ROOT / "build" / "clients")
