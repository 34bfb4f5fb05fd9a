"""Does the catalog hold what a workload names, and can this model do what is asked?"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import (
    ValidationError,
)

from advisor.engine.network import from_hf_config
from advisor.engine.step import model_mismatch
from advisor.workload import (
    RUNNABLE_KINDS,
    Spec,
    Tco,
    WorkloadError,
    check_parts,
    error,
    unavailable,
    unknown,
)


def unsuited_model(spec: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the engine would refuse of every chip: this kind of question to this kind of model."""
    from advisor.inputs.from_catalog import model_row
    from advisor.inputs.to_engine import model_of, workload_of

    own = spec["model"]["config"] if isinstance(spec["model"], Mapping) else None
    try:
        if isinstance(own, Mapping):
            from_hf_config(own, "own-model")
    except ValueError as trouble:
        return [error("model.config", f"cannot be read: {trouble}", "the contents of a Hugging Face config.json")]
    try:
        why = model_mismatch(workload_of(dict(spec)), model_of(model_row(spec["model"])))
    except (ValueError, KeyError, TypeError, OSError):
        return []  # a trace that is still a path is refused where it is read
    return [error("kind" if "kind:" in why else "traffic.input_tokens", why)] if why else []


# --- against the catalog ----------------------------------------------------------------------------------------


def check_catalog(spec: Mapping[str, Any], files: bool = False, before: int = 0) -> None:
    """Raises WorkloadError unless what the spec names exists; paths are refused unless `files` (the command line).

    `before`: errors that were found already, of the number that is explained.
    """
    found = []
    if spec["kind"] == "portfolio":
        if found := unknown_names(spec) + check_parts(spec, files, check_catalog):
            raise WorkloadError(found)
        return
    if spec["kind"] not in RUNNABLE_KINDS:
        found.append(unavailable(spec["kind"]))
    else:
        found = unknown_names(spec, before) + ([] if files else paths_in(spec))
    if found := found or unsuited_model(spec):
        raise WorkloadError(found)


def paths_in(spec: Mapping[str, Any]) -> list[dict[str, str]]:
    """Fields that would make the server read its own files."""
    found = []
    if isinstance(spec["model"], Mapping) and isinstance(spec["model"]["config"], str):
        found.append(
            error("model.config", "file paths are not accepted here", "a catalog ID, or the contents of config.json")
        )
    for key in ("input_tokens", "output_tokens"):
        if "trace" in (spec["traffic"][key] or {}):
            found.append(error(f"traffic.{key}.trace", "file paths are not accepted here", "a number or {mean, p95}"))
    if isinstance(spec["traffic"]["trace"], str):
        found.append(
            error("traffic.trace", "file paths are not accepted here", "the text of the file, as trace: {csv: ...}")
        )
    return found


def unknown_names(spec: Mapping[str, Any], before: int = 0) -> list[dict[str, str]]:
    """Names that the catalog does not hold, each with its nearest; `before`: as in check_catalog."""
    from catalog.models import Accelerator, Assumption, Framework, Price, QuantizationMethod, Region, ServedModel

    found: list[dict[str, str]] = []

    def check(field: str, names: list[str], known: Callable[[], Iterable[str]]) -> None:
        found.extend(unknown(field, names, known, before + len(found)))

    if isinstance(spec["model"], str):
        ids = ServedModel.objects.values_list("hf_id", "slug")
        check("model", [spec["model"]], lambda: [name for pair in ids for name in pair])
    chosen = spec["constraints"]
    slugs = lambda: list(Accelerator.objects.values_list("slug", flat=True))  # noqa: E731
    for field, source in (
        ("accelerators", slugs),
        ("vendors", lambda: list(Accelerator.objects.values_list("vendor", flat=True).distinct())),
        ("providers", lambda: list(Price.objects.values_list("provider", flat=True).distinct())),
        ("regions", lambda: [*Price.objects.values_list("region", flat=True).distinct(), *region_slugs(Region)]),
        ("frameworks", lambda: list(Framework.objects.values_list("slug", flat=True).distinct())),
        ("formats", lambda: list(QuantizationMethod.objects.values_list("slug", flat=True))),
    ):
        for side in ("allow", "deny"):
            check(f"constraints.{field}.{side}", chosen[field][side], source)
    for field in ("owned", "inventory"):
        check(field, list(spec[field]), slugs)
    site = spec["constraints"]["site"].get("region")
    check("constraints.site.region", [site] if site else [], lambda: region_slugs(Region))
    extra = [key for key in spec["tco"] if key not in Tco.model_fields]
    check("tco", extra, lambda: [*Tco.model_fields, *Assumption.objects.values_list("key", flat=True)])
    return found


def wrong_names(raw: Mapping[str, Any]) -> list[dict[str, str]]:
    """Unknown names in those parts of an unusable workload that can be read by themselves."""
    parts: dict[str, Any] = {}
    for key in ("model", "constraints", "owned", "inventory", "tco"):
        try:
            Spec.model_validate({key: raw[key]} if key in raw else {})
        except ValidationError:
            continue
        parts |= {key: raw[key]} if key in raw else {}
    return unknown_names(Spec.model_validate(parts).model_dump(mode="json"))


def region_slugs(region: Any) -> list[str]:
    return list(region.objects.values_list("slug", flat=True))
