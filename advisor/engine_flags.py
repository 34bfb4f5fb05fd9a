"""Options of released engines: reading them out of a package, and whether a command keeps to the list."""

import ast
import re
import shlex
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from advisor.engine.launch import TRTLLM_OPTIONS, Launch

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "flags"
FLAG = re.compile(r"--?[A-Za-z][\w-]*")
DEFINES = ("add_argument", "option", "CLIParameter", "DisableCLI")  # argparse, click, cyclopts as aiperf wraps it


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The option names of one released package, as its fixture holds them."""

    package: str
    version: str
    extracted_on: str
    command: str
    names: frozenset[str]

    @property
    def says(self) -> str:
        return f"{self.package} {self.version}, options read on {self.extracted_on}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a package defines its options."""

    files: tuple[str, ...]  # a name below the archive's top, or its end
    classes: tuple[str, ...] = ()  # whose fields are options too


VLLM = Source(
    files=("vllm/engine/arg_utils.py", "vllm/entrypoints/openai/cli_args.py"),
    classes=("BaseFrontendArgs", "FrontendArgs"),
)
SOURCES = {
    "vllm": VLLM,
    "vllm-tpu": VLLM,
    "vllm-bench": Source(files=("vllm/benchmarks/serve.py", "vllm/benchmarks/datasets/datasets.py")),
    "sglang": Source(files=("sglang/srt/server_args.py",)),
    "tensorrt-llm": Source(files=("tensorrt_llm/commands/serve.py",)),
    "furiosa-llm": Source(files=("furiosa_llm/cli/serve.py",)),
    "lmdeploy": Source(files=("lmdeploy/cli/serve.py", "lmdeploy/cli/utils.py")),
    "mlx": Source(files=("mlx_lm/server.py",)),
    "llama.cpp": Source(files=("vendor/llama.cpp/common/arg.cpp",)),
    "guidellm": Source(files=("guidellm/cli/run.py", "guidellm/schemas/benchmark/entrypoints.py")),
    "aiperf": Source(files=("aiperf/config/flags/cli_config.py",)),
}
# framework and its version in the catalog -> fixtures that a flag must stand in, all of them, and why these
LISTS: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("vllm", "0.24.0"): (("vllm-0.24.0",), ""),
    ("sglang", "0.5.10"): (("sglang-0.5.10",), ""),
    ("furiosa-llm", "2025.3"): (("furiosa-llm-2025.3.4",), "the last release of furiosa-llm 2025.3"),
    ("lmdeploy", "0.10"): (("lmdeploy-0.10.2",), "the last release of lmdeploy 0.10"),
    ("mlx", "0.28"): (("mlx-0.28.4",), "the last release of mlx-lm 0.28"),
    ("vllm-tpu", "0.12"): (("vllm-tpu-0.12.0",), ""),
    ("vllm-gaudi", "0.11"): (("vllm-0.11.0",), "a plugin of vLLM 0.11.0, whose command line it uses"),
    ("vllm-ascend", "0.11"): (("vllm-0.11.0",), "a plugin of vLLM 0.11.0, whose command line it uses"),
    ("neuron", "2.26"): (("vllm-0.11.0",), "the plugin of SDK 2.26.1 installs vLLM 0.11.0, whose command line it uses"),
    ("llama.cpp", "b7000"): (
        ("llama.cpp-0.3.16", "llama.cpp-0.3.17"),
        "b7000 lies between the sources that these two releases carry; a flag must stand in both",
    ),
    ("vllm-bench", ""): (("vllm-bench-0.24.0",), ""),
    ("guidellm", ""): (("guidellm-0.8.1",), ""),
    ("aiperf", ""): (("aiperf-0.13.0",), ""),
}
# where no package of the release can be had: options of the project's own source at another commit
NEAREST: dict[tuple[str, str], tuple[str, str]] = {
    ("tensorrt-llm", "1.0"): (
        "tensorrt-llm-00209af149e7",
        "later than 1.0: the index has only stubs of its packages",
    ),
    ("tgi", "3.3"): (
        "tgi-009c4e0b945b",
        "a program in Rust, released as an image; near which release is not told",
    ),
}
OPTION_KEYS = {("tensorrt-llm", "1.0"): "tensorrt-llm-options-2025"}  # keys of the file beside the command
GENERATORS = {"vllm": "vllm-bench", "guidellm": "guidellm", "aiperf": "aiperf"}


# --- reading a package ------------------------------------------------------------------------------------------


def extract(kind: str, archive: Path) -> frozenset[str]:
    """Option names that a wheel or source archive defines; ValueError says what is missing."""
    if kind not in SOURCES:
        raise ValueError(f"{kind}: not one of {', '.join(SOURCES)}")
    source = SOURCES[kind]
    found: set[str] = set()
    for name in source.files:
        text = _member(archive, name)
        found |= set(_of_cpp(text) if name.endswith(".cpp") else _of_python(text, source.classes))
    if not found:
        raise ValueError(f"{archive}: {', '.join(source.files)} defines no option")
    return frozenset(found)


def _member(archive: Path, name: str) -> str:
    read: Callable[[str], bytes]
    if zipfile.is_zipfile(archive):
        packed = zipfile.ZipFile(archive)
        names, read = packed.namelist(), packed.read
    else:
        tar = tarfile.open(archive)  # noqa: SIM115
        names, read = tar.getnames(), lambda n: tar.extractfile(n).read()  # type: ignore[union-attr]
    matches = [n for n in names if n == name or n.endswith(f"/{name}")]
    if not matches:
        raise ValueError(f"{archive}: holds no {name}")
    return read(matches[0]).decode()


def _of_python(text: str, classes: tuple[str, ...]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and _called(node) in DEFINES:
            yield from _flags(node)
        elif isinstance(node, ast.ClassDef) and node.name in classes:
            yield from map(_flag_of, _fields(node))
        elif isinstance(node, ast.Dict):  # guidellm names the option of a field in its schema
            yield from (f"--{alias}" for alias in _aliases(node))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _flags(node: ast.Call) -> Iterator[str]:
    toggles = any("BooleanOptionalAction" in ast.dump(k.value) for k in node.keywords if k.arg == "action")
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "name")]
    words = [c.value for arg in given for c in ast.walk(arg) if isinstance(c, ast.Constant)]
    for word in words:
        if isinstance(word, str) and FLAG.fullmatch(word):
            yield word
            if toggles and word.startswith("--"):
                yield f"--no-{word[2:]}"


def _fields(node: ast.ClassDef) -> list[str]:
    targets = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _flag_of(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _aliases(node: ast.Dict) -> Iterator[str]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "argument_alias" and isinstance(value, ast.Constant):
            yield str(value.value).replace("_", "-")


def _of_cpp(text: str) -> Iterator[str]:
    """The braces that open an option of llama.cpp: {"-c", "--ctx-size"}."""
    for braces in re.findall(r"\{((?:\s*\"-[^\"]+\"\s*,?)+)\}", text):
        yield from re.findall(r"\"(--?[A-Za-z][\w-]*)\"", braces)


# --- fixtures ---------------------------------------------------------------------------------------------------


def text_of(package: str, version: str, day: str, command: str, names: frozenset[str]) -> str:
    head = [f"# package: {package}", f"# version: {version}", f"# extracted on: {day}", f"# command: {command}"]
    return "\n".join([*head, *sorted(names)]) + "\n"


@cache
def options(stem: str) -> Options:
    """A fixture; FileNotFoundError when there is none of that name."""
    lines = (FOLDER / f"{stem}.txt").read_text().splitlines()
    head = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    return Options(
        package=head["package"],
        version=head["version"],
        extracted_on=head["extracted on"],
        command=head["command"],
        names=frozenset(line for line in lines if line and not line.startswith("#")),
    )


def flags_of(words: list[str]) -> list[str]:
    """The option names in a command, without the values given by `=` and what is Python's own."""
    if words[:2] == ["python", "-m"]:
        words = words[3:]
    return [word.partition("=")[0] for word in words if FLAG.fullmatch(word.partition("=")[0])]


def check(framework: str, version: str, command: str) -> dict[str, Any]:
    """{checked, unknown, source}: whether every option of a command stands in the lists of that release."""
    stems, why = LISTS.get((framework, version), ((), ""))
    if not stems:
        return nearest(framework, version, command)
    lists = [options(stem) for stem in stems]
    unknown = [f for f in flags_of(shlex.split(command)) if not all(f in each.names for each in lists)]
    source = "; ".join(each.says for each in lists) + (f" ({why})" if why else "")
    return {"checked": not unknown, "unknown": unknown, "source": source}


def nearest(framework: str, version: str, command: str) -> dict[str, Any]:
    """What can be said without a list of the release: never checked, yet compared with the source where it was read."""
    said = f"no released package of {framework} {version} could be read"
    stem, why = NEAREST.get((framework, version), ("", ""))
    if not stem:
        return {"checked": False, "unknown": [], "source": said}
    known = options(stem)
    unknown = [f for f in flags_of(after_launcher(shlex.split(command))) if f not in known.names]
    found = f"{known.package} at {known.version} ({why})"
    ends = "" if unknown else f"; all stand in the source of {found}"
    return {"checked": False, "unknown": unknown, "source": found if unknown else said + ends}


def after_launcher(words: list[str]) -> list[str]:
    """The words of the server, without those of what spreads it over hosts."""
    return words[words.index("trtllm-llmapi-launch") + 1 :] if "trtllm-llmapi-launch" in words else words


def unknown_keys(framework: str, version: str, text: str) -> list[str]:
    """Keys of an options file, sections as `section.key`, that the source does not define; none where none was read."""
    stem = OPTION_KEYS.get((framework, version))
    if stem is None:
        return []
    return [key for key in _keys(yaml.safe_load(text)) if key not in options(stem).names]


def _keys(found: dict[str, Any]) -> Iterator[str]:
    for key, value in found.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{inner}" for inner in value)


def options_files(launch: Launch) -> list[str]:
    return [text for name, text in launch["files"].items() if name == TRTLLM_OPTIONS]


def checked(framework: str, version: str, launch: Launch) -> dict[str, Any]:
    """A launch with what is known of its flags, and those of its load test."""
    found: dict[str, Any] = dict(launch)
    if launch["command"]:
        said = check(framework, version, launch["command"])
        keys = [k for text in options_files(launch) for k in unknown_keys(framework, version, text)]
        found["flags"] = said | {"unknown": [*said["unknown"], *keys], "checked": said["checked"] and not keys}
    if "load_test" in launch:
        commands = launch["load_test"]["commands"]
        flags = {tool: check(GENERATORS[tool], "", command) for tool, command in commands.items()}
        found["load_test"] = {**launch["load_test"], "flags": flags}
    return found
