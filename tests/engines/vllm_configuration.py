"""Asks vLLM's own parser and configuration classes whether `vllm serve` starts with some options. No GPU is needed.

Run it by the Python of an environment that has vLLM and a CPU build of torch (vLLM installed without its
dependencies, then those that are missing; CI does not build it):

    python vllm_configuration.py ROWS.csv VERDICTS.csv CONFIGS
    python vllm_configuration.py --options OPTIONS.txt

ROWS.csv has the columns `config` (a file in the folder CONFIGS), `capability` (of the simulated GPU, such as 9.0),
`gib` (its memory) and `options` (as in a shell). VERDICTS.csv repeats them with `accepted` (yes or no) and `said`, the
last line of the refusal. Compiled kernels and drivers are replaced by stand-ins, and the interfaces of a model class
are read from its source: what the engine refuses only when it builds layers or loads weights is not seen here.
OPTIONS.txt gets the options with the values that the parser takes (option_values.py). README.md beside this file says
how to make the environment.
"""

import ast
import contextlib
import csv
import dataclasses
import importlib.util
import io
import json
import os
import shlex
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import option_values

os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")


DECODERS = ("ForCausalLM", "ForConditionalGeneration", "MTP")  # parts of the names of classes that generate tokens


class StandIn(types.ModuleType):
    """A compiled extension: every function of it returns True."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: True


def without_kernels() -> None:
    """Lets vLLM be imported without a GPU, its driver or its compiled kernels."""
    import torch
    import torch.library
    from triton.backends import backends

    for name, backend in backends.items():
        backend.driver.is_active = staticmethod(lambda active=name == "nvidia": active)
    register = torch.library.register_fake

    def register_if_known(operator: str, function: Any = None, /, **kwargs: Any) -> Any:
        def decorated(function: Any) -> Any:
            try:
                return register(operator, function, **kwargs)
            except RuntimeError:  # an operator of a compiled extension
                return function

        return decorated if function is None else decorated(function)

    torch.library.register_fake = register_if_known
    for namespace in ("_C", "_moe_C", "_C_cache_ops"):
        setattr(torch.ops, namespace, StandIn(namespace))
    for module in ("_C", "_C_stable_libtorch", "_moe_C", "vllm_flash_attn", "vllm_flash_attn.flash_attn_interface"):
        sys.modules[f"vllm.{module}"] = StandIn(f"vllm.{module}")


def simulated_platform() -> Any:
    """A host of eight NVIDIA GPUs; `capability` and `bytes_each` say which."""
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class Simulated(CudaPlatformBase):  # type: ignore[misc]
        capability, bytes_each = (9, 0), 80 * 2**30

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(*cls.capability)

        @classmethod
        def has_device_capability(cls, capability: Any, device_id: int = 0) -> bool:
            wanted = capability if isinstance(capability, tuple) else divmod(capability, 10)
            return cls.capability >= wanted

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return f"simulated GPU of capability {cls.capability[0]}.{cls.capability[1]}"

        @classmethod
        def get_device_uuid(cls, device_id: int = 0) -> str:
            return "0"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return cls.bytes_each

        @classmethod
        def device_count(cls) -> int:
            return 8

        @classmethod
        def is_fully_connected(cls, device_ids: list[int]) -> bool:
            return True

    return Simulated


def interfaces_of(registered: Any) -> Any:
    """What vLLM would learn by importing the class of a model, from the names of its base classes."""
    from vllm.model_executor.models.registry import _ModelInfo

    bases, name = base_names(registered.module_name, registered.class_name), registered.class_name
    facts: dict[str, Any] = {field.name: False for field in dataclasses.fields(_ModelInfo)}
    decoder = any(part in each for each in (name, *bases) for part in DECODERS)
    return _ModelInfo(**facts | {
        "architecture": name, "is_text_generation_model": decoder, "is_pooling_model": not decoder,
        "attn_type": "decoder", "default_seq_pooling_type": "LAST", "default_tok_pooling_type": "ALL",
        "score_type": "bi-encoder", "supports_pp": "SupportsPP" in bases, "supports_lora": "SupportsLoRA" in bases,
        "supports_multimodal": "SupportsMultiModal" in bases, "has_inner_state": "HasInnerState" in bases,
        "is_hybrid": "IsHybrid" in bases, "is_attention_free": "IsAttentionFree" in bases,
        "has_noops": "HasNoOps" in bases, "supported_video_pruning_methods": (),
    })  # fmt: skip


def base_names(module: str, name: str) -> set[str]:
    """The names of all base classes that the same file and the model files it imports from define."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    package = module if spec.submodule_search_locations else module.rpartition(".")[0]
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    if name not in classes:  # defined elsewhere: the first import is that of NVIDIA's chips
        return imported_bases(tree, package, name)
    found = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in classes[name].bases}
    for base in list(found):
        found |= base_names(module, base) if base in classes else imported_bases(tree, package, base)
    return found


def imported_bases(tree: ast.Module, package: str, name: str) -> set[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            own = {alias.asname or alias.name: alias.name for alias in node.names}
            if name in own:
                source = importlib.util.resolve_name("." * node.level + node.module, package)
                return base_names(source, own[name]) if ".models." in source else set()
    return set()


def with_draft(argv: list[str], config: Path, folder: str) -> list[str]:
    """The options with a draft checkpoint that is there: one layer of the model's own sizes, as an EAGLE head."""
    at = argv.index("--speculative-config") + 1 if "--speculative-config" in argv else 0
    if not at or '"model"' not in argv[at]:
        return argv
    draft = json.loads(config.read_text()) | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}
    (Path(folder) / "draft").mkdir()
    (Path(folder) / "draft" / "config.json").write_text(json.dumps(draft))
    return [*argv[:at], json.dumps(json.loads(argv[at]) | {"model": f"{folder}/draft"}), *argv[at + 1 :]]


def refusal(parser: Any, config: Path, options: str) -> str:
    """The last line of what vLLM says against these options; empty: it goes on to load the model."""
    import vllm.platforms as platforms
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(config.read_text())
        argv = ["--model", folder, "--skip-tokenizer-init", *with_draft(shlex.split(options), config, folder)]
        usage = io.StringIO()
        try:
            with contextlib.redirect_stderr(usage):
                parsed = parser.parse_args(argv)
        except SystemExit:
            return usage.getvalue().partition("error: ")[2].strip().splitlines()[0]
        try:
            engine = AsyncEngineArgs.from_cli_args(parsed)
            found = engine.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
            platforms.current_platform.check_if_supports_dtype(found.model_config.dtype)  # as each worker does first
        except (Exception, SystemExit) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip() and "errors.pydantic" not in line]
            said = next((line for line in lines if "error," in line), lines[-1] if lines else type(error).__name__)
            return said.partition(" [type=")[0].replace(folder, config.name)
    return ""


def main(*paths: str) -> None:
    without_kernels()
    import vllm.platforms as platforms

    platform = simulated_platform()
    platforms._current_platform = platform()
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.model_executor.models import registry
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    registry._LazyRegisteredModel.inspect_model_cls = interfaces_of
    parser = make_arg_parser(FlexibleArgumentParser())
    if paths[0] == "--options":
        from vllm import __version__
        from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

        names = {"--quantization": QUANTIZATION_METHODS, "-q": QUANTIZATION_METHODS}
        Path(paths[1]).write_text(option_values.text_of("vllm", __version__, parser, names))
        return
    rows, verdicts, configs = paths
    with open(rows, newline="") as given, open(verdicts, "w", newline="") as told:
        reader = csv.DictReader(given)
        writer = csv.DictWriter(told, [*(reader.fieldnames or ()), "accepted", "said"], lineterminator="\n")
        writer.writeheader()
        for row in reader:
            major, _, minor = row["capability"].partition(".")
            platform.capability, platform.bytes_each = (int(major), int(minor)), int(row["gib"]) * 2**30
            said = refusal(parser, Path(configs) / row["config"], row["options"])
            writer.writerow(row | {"accepted": "no" if said else "yes", "said": said})
            told.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
