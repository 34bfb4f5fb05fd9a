"""Every path, key, address and variable that a page names exists."""

import re
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml
from django.urls import Resolver404, get_resolver, resolve
from pydantic import BaseModel

from advisor.result import Answer
from tests.docs import FENCE, ROOT, Said, is_placeholder, pages, sources, spans
from tests.examples.inputs import leaves
from tests.test_layers import MODULES

TOPS = ("advisor", "catalog", "probes", "tests", "fixtures", "docs", ".ci")
FILE = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, TOPS))})/[\w./*<>{{}},-]*[\w*>]")
ENDINGS = "py md yaml csv json toml txt html js css sh service ini xz".split()
ADDRESS = re.compile(r"^(?:(?:GET|POST|PUT|PATCH|DELETE) )?(/[\w./<>-]+)(?:\?.*)?$")
KEY = re.compile(r"^[a-z][a-z0-9]*(?:_[a-z0-9]+)+$")  # snake_case
OPTION = re.compile(r"^[a-z][a-z0-9]*(?:-[a-z0-9]+){2,}$")  # an assumption or a slug, such as staff-usd-per-year
VARIABLE = re.compile(r"\bASSAY_[A-Z_]+[A-Z](?![A-Z_*])")
GENERATED = (
    "docs/reference/fidelity.md",
    "docs/reference/track-record.md",
    "docs/reference/claims.md",
    "docs/reference/support-matrix.md",
)  # from sources
OF_OTHER_SOFTWARE = {"my_chart", "attention_dp_config", "enable_balance", "autocast_adapter_dtype"}
BUILT = re.compile(r"price_\w+")  # fields of the what-if form, one for each term
# Files that a reader makes, or that other software has.
OF_OTHERS = set(
    """agent.pyz r.json result.json config.json workload.yaml compose.yaml model.safetensors.index.json train.py
    memo.html memo.md db.sqlite3 plan.json launch.sh train.sh serve.sh index.html options.csv hostfile.txt""".split()
)


@cache
def source_text() -> str:
    return "\n".join(file.read_text() for file in sources())


@cache
def vocabulary() -> frozenset[str]:
    """Every word of the code, the settings and the fixtures, and the name of every file."""
    files = [file for top in TOPS for file in (ROOT / top).rglob("*")]
    names = {file.stem for file in files} | {file.name.removesuffix(".csv.xz") for file in files}
    modules = (ROOT / "fixtures" / "measurements" / "h200-encoders.csv").read_text()
    return frozenset(re.findall(r"[A-Za-z_][\w-]*", f"{source_text()}\n{modules}")) | names


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from sections_in(part)


@cache
def inputs() -> frozenset[str]:
    """Every key of a workload file, and every section, as a path."""
    paths = [re.sub(r"\[\]|\.(KEY|STACK|NAME)\b", "", path) for path, _ in leaves()]
    rows = yaml.safe_load((ROOT / "fixtures" / "overheads.yaml").read_text())
    paths += [f"tco.{row['key']}" for row in rows]
    return frozenset(".".join(path.split(".")[:n]) for path in paths for n in range(1, path.count(".") + 2))


def is_answer(path: str) -> bool:
    """Whether an answer, or one of its parts, has a field with this path."""
    first, *rest = re.sub(r"\[[^\]]*\]", "", path).split(".")
    return any(first in section.model_fields and follows(section, [first, *rest]) for section in parts())


def follows(section: type[BaseModel], keys: list[str]) -> bool:
    field = section.model_fields.get(keys[0])
    if field is None:
        return False
    inner = list(sections_in(field.annotation))
    return len(keys) == 1 or not inner or any(follows(part, keys[1:]) for part in inner)


@cache
def parts() -> tuple[type[BaseModel], ...]:
    found: list[type[BaseModel]] = [Answer]
    for section in found:
        found += [p for f in section.model_fields.values() for p in sections_in(f.annotation) if p not in found]
    return tuple(dict.fromkeys(found))


def files_named() -> Iterator[Said]:
    for page, text in pages():
        if page in GENERATED:
            continue
        for match in FILE.finditer(re.sub(r"https?://\S+", "", text)):
            yield Said(page, match[0].rstrip("."))
    for said in spans():
        if re.fullmatch(rf"[\w./*<>-]+\.(?:{'|'.join(ENDINGS)})", said.text) and said.text not in OF_OTHERS:
            if said.page not in GENERATED and said.text not in inputs():
                yield said


def exists(name: str) -> bool:
    """Whether the file is in the repository, or the code writes or reads one of this name."""
    if name.startswith(("/", "~")) or name in source_text():
        return True
    pattern = re.sub(r"<[^>]*>|\{[^}]*\}|\b[A-Z]{2,}(?=[./-]|$)", "*", name)
    bases = (ROOT, ROOT / "fixtures", ROOT / "fixtures" / "measurements")
    patterns = [pattern] if "/" in pattern else [pattern, f"**/{pattern}"]
    return any(next(iter(base.glob(each)), None) for base in bases for each in patterns)


def test_every_file_exists() -> None:
    named = sorted({(said.page, said.text) for said in files_named()}, key=str)
    missing = [
        (page, name) for page, name in named
        if "acme" not in name and not exists(name)
    ]  # fmt: skip
    assert missing == []


def test_every_variable_is_read_somewhere() -> None:
    read = vocabulary() | set(re.findall(r"\w+", (ROOT / "docs/how-to/assay-agent.service").read_text()))
    named = {(page, name) for page, text in pages() for name in VARIABLE.findall(text)}
    assert {
        (page, name) for page, name in named if name not in read and name.removeprefix("ASSAY_") not in read
    } == set()


def test_every_address_exists() -> None:
    wrong = []
    for said in spans():
        match = ADDRESS.match(said.text)
        if match and match[1].split("/")[1] in tops() and not resolves(match[1]):
            wrong.append(f"{said.page}: {said.text}")
    assert wrong == []


def tops() -> set[str]:
    """The first parts of the service's addresses."""
    return {str(pattern.pattern).strip("^").split("/")[0] for pattern in get_resolver().url_patterns} - {""}


def resolves(path: str) -> bool:
    for value in ("6f1ed002-ab5d-4f3b-9d4c-000000000000", "1", "memo.md"):
        for end in ("", "/"):
            try:
                resolve(re.sub(r"<[^>]*>|\b[A-Z]{1,}\b", value, path.removesuffix("/...")).rstrip("/") + end)
                return True
            except Resolver404:
                continue
    return any(f"/{pattern.pattern}" == path for pattern in get_resolver().url_patterns) or mixed(path)


def mixed(path: str) -> bool:
    """An address with an advice and a number: the first placeholder is an ID, the others are numbers."""
    first = re.sub(r"\bID\b", "6f1ed002-ab5d-4f3b-9d4c-000000000000", path)
    try:
        resolve(re.sub(r"<[^>]*>|\b[A-Z]+\b", "1", first))
    except Resolver404:
        return False
    return True


def test_every_key_of_a_workload_exists() -> None:
    sections = {path.split(".")[0] for path in inputs() if "." in path} - {"model"}
    wrong = []
    for said in spans():
        for path in re.findall(r"(?<![\w.-])[a-z_]+(?:\.[a-z][\w-]*)+", said.text):
            if path.split(".")[0] in sections and path not in inputs() and not is_answer(path) and not is_file(path):
                wrong.append(f"{said.page}: {path}")
    assert wrong == []


def is_file(path: str) -> bool:
    """A file or a module, which look like paths of keys."""
    return path.rsplit(".", 1)[1] in ENDINGS or path in MODULES


def test_every_field_of_an_answer_exists() -> None:
    roots = {name for section in (Answer,) for name in section.model_fields}
    wrong = []
    for said in spans():
        for path in re.findall(r"(?<![\w./-])[a-z_]+(?:\[\w*\])?(?:\.[a-z_]\w*(?:\[\w*\])?)+(?![\w/(])", said.text):
            if (
                re.split(r"[.\[]", path)[0] in roots
                and not is_file(path)
                and not is_answer(path)
                and path not in inputs()
            ):
                wrong.append(f"{said.page}: {path}")
    assert wrong == []


def test_every_key_and_slug_is_a_word_of_the_code_or_the_fixtures() -> None:
    wrong = {
        f"{said.page}: {word}"
        for said in spans()
        for word in re.split(r"[\s.,:=(){}\[\]\"'/+*|<>]+", said.text)
        if (KEY.match(word) or OPTION.match(word))
        and word not in vocabulary() | OF_OTHER_SOFTWARE
        and not (BUILT.fullmatch(word) or is_placeholder(word) or said.page in GENERATED)
    }
    assert sorted(wrong) == []


def test_every_workload_of_a_block_has_only_known_keys() -> None:
    tops = {path.split(".")[0] for path in inputs()}
    wrong = []
    for page, text in pages():
        for kind, body in FENCE.findall(text):
            if (
                kind == "yaml"
                and isinstance(given := loaded(body), dict)
                and set(given) & {"traffic", "slo", "training"}
            ):
                wrong += [
                    f"{page}: {path}" for path in paths_in(given) if path not in inputs() and path.split(".")[0] in tops
                ]
                wrong += [f"{page}: {key}" for key in given if key not in tops]
    assert wrong == []


def loaded(body: str) -> Any:
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError:
        return None


NAMES_OF_OTHERS = ("owned", "inventory", "usd_per_accelerator_hour", "price_ratios", "weights", "team", "workloads")


def paths_in(given: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in given.items():
        if key != "...":
            yield before + key
        if isinstance(value, dict) and before + key not in NAMES_OF_OTHERS and key != "config":
            yield from paths_in(value, f"{before}{key}.")
