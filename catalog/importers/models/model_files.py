"""Reads a model from a folder or a file: config.json, and hf_quant_config.json and the checkpoint's index beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.engine.network import Doubt, from_hf_config, from_shape, parameters, size_doubts
from catalog.importers.models import hf, hub
from catalog.loading.bounded import FILES
from catalog.loading.fixtures import FixtureError
from catalog.models import ServedModel

CONFIG, QUANTIZATION, INDEX = "config.json", "hf_quant_config.json", "model.safetensors.index.json"
PARAMS = "params.json"  # of Mistral, where config.json is missing
MAX_INDEX_BYTES = 64 * 2**20  # a line for every tensor
HUB_CACHE = "models--"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFiles:
    """What the files of a model state. `names`: what the model is called there, the best first."""

    config: dict[str, Any]
    names: tuple[str, ...]
    index: Mapping[str, Any]  # metadata of the safetensors index
    source: str

    def doubts(self, published: int | None = None) -> list[Doubt]:
        """The doubts about the size of the model that is read from these files. ValueError: it cannot be read."""
        model = from_hf_config(self.config, "model")
        return size_doubts(model, self.config, self.names, published or published_parameters(self.names), self.index)

    def warnings(self, confirmed: bool, how: str, published: int | None = None) -> list[str]:
        """The doubts that are only warnings. FixtureError: one needs confirmation, and `how` says how to give it."""
        doubts = self.doubts(published)
        if asked := [doubt.text for doubt in doubts if doubt.asks and not confirmed]:
            raise FixtureError(f"{self.source}: {'; '.join(asked)}. Check the size; if it is right, {how}")
        return [doubt.text for doubt in doubts]


def read(given: Path) -> ModelFiles:
    """The model in a config.json, or in the folder that has one. FixtureError: it cannot be read."""
    path = given / CONFIG if given.is_dir() else given
    if given.is_dir() and not path.is_file() and (given / PARAMS).is_file():
        path = given / PARAMS
    if not path.is_file():
        raise FixtureError(f"{given}: no {CONFIG} there; give the path of a Hugging Face {CONFIG} or of its folder")
    config = with_quantization(object_in(path), object_beside(path, QUANTIZATION, hub.MAX_BYTES))
    index = object_beside(path, INDEX, MAX_INDEX_BYTES).get("metadata")
    names = tuple(filter(None, (name_of(path), own_name(config))))
    return ModelFiles(config=config, names=names, index=index if isinstance(index, dict) else {}, source=path.name)


def from_hub(hub_id: str) -> ModelFiles:
    """The model with this ID on the hub. FixtureError: it cannot be read."""
    text, source = hub.config_json(hub_id)
    config = hf.parsed(text, f"config.json of {hub_id}")
    if not config.get("quantization_config"):
        beside = hub.file_of(hub_id, QUANTIZATION)
        config = with_quantization(config, hf.parsed(beside, f"{QUANTIZATION} of {hub_id}") if beside else {})
    return ModelFiles(config=config, names=(hub_id,), index={}, source=source)


def own_name(config: Mapping[str, Any]) -> str:
    """The name that config.json states; empty without one."""
    return str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]


def name_of(path: Path) -> str:
    """The name in a path: OWNER/NAME of `OWNER--NAME_config.json` or a hub's cache, else the name of the folder."""
    cached = next((part for part in path.resolve().parts if part.startswith(HUB_CACHE)), "")
    stem = path.name.removesuffix(CONFIG).rstrip("_-.")
    return (cached.removeprefix(HUB_CACHE) or stem or path.resolve().parent.name).replace("--", "/")


def beside(path: Path, name: str) -> Path:
    """The file `name` that belongs to this config.json: X_config.json has X_hf_quant_config.json beside it."""
    prefix = path.name.removesuffix(CONFIG) if path.name.endswith(CONFIG) else ""
    return path.with_name(f"{prefix}{name}")


def object_beside(path: Path, name: str, max_bytes: int) -> dict[str, Any]:
    """The JSON object in a file beside config.json; empty without that file."""
    file = beside(path, name)
    return object_in(file, max_bytes) if file.is_file() else {}


def object_in(path: Path, max_bytes: int | None = None) -> dict[str, Any]:
    """The JSON object in a file. FixtureError: it cannot be read, or is too large."""
    max_bytes = max_bytes or hub.MAX_BYTES
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise FixtureError(f"{path}: cannot be read: {error.strerror or error}; check its permissions") from error
    if len(content) > max_bytes:
        raise FixtureError(f"{path}: larger than {max_bytes:,} bytes; is it a {path.name}?")
    return hf.parsed(content, str(path), FILES)


def with_quantization(config: dict[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json with the quantization of NVIDIA ModelOpt's hf_quant_config.json, if it states none itself."""
    if not beside or config.get("quantization_config"):
        return config
    return {**config, "quantization_config": {"quant_method": "modelopt", **beside}}


def published_parameters(names: tuple[str, ...]) -> int | None:
    """The published size of the first of these Hugging Face IDs that is in the catalog; None if none is."""
    for name in names:
        if row := ServedModel.objects.filter(hf_id__iexact=name).first():
            return row.published_parameters or parameters(from_shape(row.slug, row.shape))
    return None
