"""Which kind of file a text is, and its records."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from advisor.deployments import logs, manifests, results, scrapes
from advisor.deployments.records import DeploymentError, Record
from catalog.loading.bounded import WEB, BoundedError, Bounds, read_json, text_of

MOST_FILES = 20
MOST_YAML = 2**20  # characters; a log is read line by line, YAML as a whole
KINDS = (
    "metrics of vLLM or SGLang (/metrics), a start-up log of theirs, a result of a load generator (JSON), a Kubernetes "
    "or Compose manifest, or a Slurm or shell script with the server's command"
)  # fmt: skip
UNIT = re.compile(r"\s*\[(?:Unit|Service|Container|Install)\]")  # of systemd
MANIFEST = re.compile(r"^(?:apiVersion|kind|services|servingEngineSpec|applications)\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Given:
    """A file that somebody gave; at_s: when its content was made (Unix time), where that is known."""

    name: str
    content: bytes
    at_s: float | None = None


def read_files(given: Sequence[Given], window_s: float | None = None, bounds: Bounds = WEB) -> list[Record]:
    """The records of all files. DeploymentError names the file."""
    if not given:
        raise DeploymentError("No file was given: give " + KINDS + ".")
    if len(given) > MOST_FILES:
        raise DeploymentError(f"At most {MOST_FILES} files at once.")
    found: list[Record] = []
    measured: list[scrapes.Scrape] = []
    for each in given:
        name = "".join(c for c in each.name if c.isprintable())[:120] or "file"
        try:
            text = text_of(each.content, bounds)
            if "\x00" in text:
                raise DeploymentError("is not text")
            if scrapes.is_scrape(text) and not text.lstrip().startswith(("{", "[")):
                measured += scrapes.read_scrape(text, name, each.at_s)
            else:
                found += _records(text, name, bounds)
        except BoundedError as error:
            raise DeploymentError(f"{name} {error}") from None
        except DeploymentError as error:
            raise DeploymentError(f"{name} {error}") from None
    return [*found, *scrapes.records_of(measured, window_s)]


def _records(text: str, name: str, bounds: Bounds) -> list[Record]:
    start = text.lstrip()[:1]
    if not start:
        raise DeploymentError("is empty")
    if text.lstrip().startswith(("{{", "{%")):
        raise DeploymentError("is a template: give what it renders to, for example the output of `helm template`")
    if results.is_text(text):
        return results.read_results(text, name, bounds)
    if start in ("{", "["):
        content = _json(text, bounds)
        if content is not None:
            return manifests.read_manifest(content, name)
        if not logs.is_log(text) and not UNIT.match(text):  # a log may begin with [2026-...
            return results.read_results(text, name, bounds)
    if "#SBATCH" in text or text.startswith("#!") or UNIT.match(text):
        return manifests.read_script(text, name)
    if MANIFEST.search(text):
        if len(text) > MOST_YAML:
            raise DeploymentError(f"has more than {MOST_YAML:,} characters of YAML; give the server's own objects")
        return manifests.read_manifest(manifests.documents(text), name)
    if logs.is_log(text):
        return logs.read_log(text, name)
    if manifests.starts_server(text):
        return manifests.read_script(text, name)
    raise DeploymentError(f"is none of these: {KINDS}")


def _json(text: str, bounds: Bounds) -> list[Any] | None:
    """The objects of `kubectl get -o json`; None: another JSON text."""
    if '"apiVersion"' not in text[:5000]:
        return None
    content = read_json(text, bounds)
    return [content] if isinstance(content, dict) else content if isinstance(content, list) else None
