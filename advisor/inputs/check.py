"""Checks a workload against the catalog: every name exists, and the model supports this kind of workload."""

import datetime
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pydantic import (
    ValidationError,
)

from advisor.engine.network import from_hf_config, size_doubts
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
    with_numbers,
)
from catalog.loading.places import places
from catalog.pricing.derived import known_on


def unsuited_model(spec: Mapping[str, Any], organisation: Any) -> list[dict[str, str]]:
    """An error if no accelerator can help: the model does not support this kind of workload; else an empty list."""
    from advisor.inputs.from_catalog import model_row
    from advisor.inputs.to_engine import model_of, workload_of

    if isinstance(spec["model"], Mapping) and isinstance(spec["model"]["config"], Mapping):
        if doubt := own_model_error(spec["model"]["config"], bool(spec["model"].get("confirm_size"))):
            return [doubt]
    try:
        reason = model_mismatch(workload_of(dict(spec)), model_of(model_row(spec["model"], organisation)))
    except (ValueError, KeyError, TypeError, OSError):
        return []  # e.g. a trace that is still a path: paths_in reports it
    return [error(field_of(reason, spec["traffic"]), reason)] if reason else []


def own_model_error(config: Mapping[str, Any], confirmed: bool) -> dict[str, str] | None:
    """An error if a config.json cannot be read, or if its size is not what its name says and nobody confirmed it."""
    try:
        model = from_hf_config(config, "own-model")
    except ValueError as e:
        return error("model.config", f"cannot be read: {e}", "the contents of a Hugging Face config.json")
    named = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    asked = [doubt.text for doubt in size_doubts(model, config, (named,)) if doubt.asks]
    return (
        error("model.config", asked[0], "another config.json, or confirm_size: true")
        if asked and not confirmed
        else None
    )


def field_of(reason: str, traffic: Mapping[str, Any] | None = None) -> str:
    """The field that a mismatch of workload and model is about."""
    marks = {
        "kind:": "kind",
        "ask for one": "model",
        "traffic.images": "traffic.images",
        "recorded": "traffic.trace",
        "answers are": "traffic.output_tokens",
    }
    field = next((field for mark, field in marks.items() if mark in reason), "traffic.input_tokens")
    lengths = (traffic or {}).get(field.removeprefix("traffic."))
    if " at p95" in reason and isinstance(lengths, Mapping) and (lengths.get("p95") or 0) > (lengths.get("mean") or 0):
        return f"{field}.p95"
    return field


# --- against the catalog ----------------------------------------------------------------------------------------


def check_catalog(spec: Mapping[str, Any], organisation: Any = None, files: bool = False, before: int = 0) -> None:
    """Raises WorkloadError if the spec names something that is not in the catalog, or in the organization's prices.

    File paths are errors too, unless `files` is set (the command line). `before` is the number of errors found
    so far: only the first MAX_ERRORS get suggestions.
    """
    errors = []
    if spec["kind"] == "portfolio":
        if errors := unknown_names(spec, organisation) + check_parts(
            spec, files, lambda part, files, before: check_catalog(part, organisation, files, before)
        ):
            raise WorkloadError(errors)
        return
    if spec["kind"] not in RUNNABLE_KINDS:
        errors.append(unavailable(spec["kind"]))
    else:
        errors = unknown_names(spec, organisation, before) + ([] if files else paths_in(spec))
    if errors := errors or unsuited_model(spec, organisation):
        raise WorkloadError(errors)


def paths_in(spec: Mapping[str, Any]) -> list[dict[str, str]]:
    """An error for each file path: the server must not read its own files for a client."""
    errors = []
    if isinstance(spec["model"], Mapping) and isinstance(spec["model"]["config"], str):
        errors.append(
            error("model.config", "file paths are not accepted here", "a catalog ID, or the contents of config.json")
        )
    if spec["traffic"] is None:
        return errors
    for key in ("input_tokens", "output_tokens"):
        if "trace" in (spec["traffic"][key] or {}):
            errors.append(error(f"traffic.{key}.trace", "file paths are not accepted here", "a number or {mean, p95}"))
    if isinstance(spec["traffic"]["trace"], str):
        errors.append(
            error("traffic.trace", "file paths are not accepted here", "the text of the file, as trace: {csv: ...}")
        )
    return errors


def unknown_names(spec: Mapping[str, Any], organisation: Any = None, before: int = 0) -> list[dict[str, str]]:
    """An error with suggestions for each name that is not in the catalog; `before` as in check_catalog."""
    from advisor.inputs.names import accelerators, models, prices_seen_by
    from catalog.models import (
        Accelerator,
        ApiPrice,
        ApiProvider,
        Assumption,
        ExchangeRate,
        Framework,
        QuantizationMethod,
        Region,
        ServedModel,
    )

    errors: list[dict[str, str]] = []
    prices = prices_seen_by(organisation)

    def check(field: str, names: list[str], known: Callable[[], Iterable[str]]) -> None:
        book: Any = accelerators if known is slugs else None
        if field in ("model", "finetuning.reward_model"):
            book = partial(models, organisation)
        meant = (lambda name: book().meant_by(name)) if book else (lambda name: [])
        errors.extend(unknown(field, names, known, before + len(errors), meant))

    slugs = lambda: list(Accelerator.objects.values_list("slug", flat=True))  # noqa: E731
    if isinstance(spec["model"], str):
        ids = ServedModel.objects.seen_by(organisation).values_list("hf_id", "slug")
        check("model", [spec["model"]], lambda: [name for pair in ids for name in pair])
    if reward := (spec.get("finetuning") or {}).get("reward_model"):
        ids = ServedModel.objects.seen_by(organisation).values_list("hf_id", "slug")
        check("finetuning.reward_model", [reward], lambda: [name for pair in ids for name in pair])
    constraints = spec["constraints"]
    for field, source in (
        ("accelerators", slugs),
        ("vendors", lambda: list(Accelerator.objects.values_list("vendor", flat=True).distinct())),
        ("providers", lambda: [name for rows in (prices, ApiPrice.objects) for name in providers_of(rows)]),
        (
            "regions",
            lambda: [
                *prices.values_list("region", flat=True).distinct(),
                *region_slugs(Region),
                *places(),
                *(place for host in ApiProvider.objects.all() for place in host.locations),
            ],
        ),
        ("frameworks", lambda: list(Framework.objects.values_list("slug", flat=True).distinct())),
        ("formats", lambda: list(QuantizationMethod.objects.values_list("slug", flat=True))),
    ):
        for side in ("allow", "deny"):
            check(f"constraints.{field}.{side}", constraints[field][side], source)
    for field in ("owned", "inventory", "usd_per_accelerator_hour"):
        check(field, list(spec.get(field, {})), slugs)
    site = spec["constraints"]["site"].get("region")
    check("constraints.site.region", [site] if site else [], lambda: region_slugs(Region))
    if (currency := spec["tco"].get("currency", "USD")) != "USD":
        check("tco.currency", [currency], lambda: ["USD", *ExchangeRate.objects.values_list("currency", flat=True)])
    errors += before_the_first_price(spec.get("prices_as_of"), prices)
    extra = [key for key in spec["tco"] if key not in Tco.model_fields]
    check("tco", extra, lambda: [*Tco.model_fields, *Assumption.objects.values_list("key", flat=True)])
    return errors


def before_the_first_price(day: str | None, prices: Any) -> list[dict[str, str]]:
    """An error if the catalog holds no price of that day or an earlier one; else an empty list."""
    if not day or known_on(prices, datetime.date.fromisoformat(day)).exists():
        return []
    first = prices.order_by("as_of").values_list("as_of", flat=True).first()
    allowed = f"a date on or after {first}, the day of its first price" if first else "no date: load prices first"
    return [error("prices_as_of", "the catalog has no price from that day or earlier", allowed)]


def unknown_names_in_parts(raw: Mapping[str, Any], organisation: Any = None) -> list[dict[str, str]]:
    """Unknown and ambiguous names in the valid sections of a workload with errors elsewhere, and in its workloads."""
    from advisor.inputs.names import with_catalog_names

    raw, _ = with_numbers(raw, Spec)
    parts: dict[str, Any] = {}
    for key in ("model", "constraints", "owned", "inventory", "usd_per_accelerator_hour", "tco"):
        try:
            Spec.model_validate({key: raw[key]} if key in raw else {})
        except ValidationError:
            continue
        parts |= {key: raw[key]} if key in raw else {}
    found = unknown_names(
        with_catalog_names(Spec.model_validate(parts).model_dump(mode="json"), organisation), organisation
    )
    inner = raw.get("workloads") if isinstance(raw.get("workloads"), list) else []
    for i, part in enumerate(inner or []):
        if isinstance(part, Mapping):
            errors = unknown_names_in_parts(part, organisation)
            found += [{**item, "field": f"workloads[{i}].{item['field']}"} for item in errors]
    return found


def providers_of(prices: Any) -> list[str]:
    return list(prices.values_list("provider", flat=True).distinct())


def region_slugs(region: Any) -> list[str]:
    return list(region.objects.values_list("slug", flat=True))
