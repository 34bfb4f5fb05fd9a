"""The workload form. Fields are named by their path in the workload file, so that errors can be assigned to them."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from django import forms
from django.db.models import Count
from django.http import QueryDict
from django.utils import translation

from advisor import workload
from advisor.engine.terms import Kind, kind_named
from advisor.inputs import check_catalog, prices_seen_by, unknown_names_in_parts, with_catalog_names
from advisor.web.form_fields import (
    ADVANCED,
    COUNTS,
    CURVE,
    ENGLISH,
    FIELDS,
    FILE,
    FORM_ONLY,
    LATENCIES,
    LATENCY,
    LINED,
    LINES,
    NUMBER,
    ONE_OF,
    QUESTION,
    SOME_OF,
    SWITCH,
    TRACE_FILE,
    TRACE_TEXT,
    TRAFFIC_BY,
    VALUES,
    WHOLE,
    YAML,
    Field,
    Group,
    checks_of,
    in_points,
    is_asked,
    is_of_fleet,
    is_share,
    is_shown,
    only_english,
    read,
    sections_text,
    stripped,
    typed,
)
from advisor.web.form_html import error_text, is_translated, required_of, shown_group
from advisor.workload import MAX_ERRORS, more_errors
from catalog.loading.bounded import BoundedError
from catalog.models import Accelerator, ExchangeRate, Framework, Organisation, QuantizationMethod, Region, ServedModel
from catalog.pricing import reader
from catalog.revision import revision
from catalog.shipped import FIXTURES

MAX_TRACE_BYTES = 900_000
MAX_MODELS = 4  # that one submission asks about
LIMITED = ("slo.ttft_ms_p95", "slo.tpot_ms_p95", "slo.e2e_ms_p95")


class WorkloadForm(forms.Form):
    """Validates through `workload.parse`; after is_valid(), `specs` are the validated workloads, one for each model."""

    asked: Mapping[str, Field] = FIELDS

    def __init__(self, *args: Any, organisation: Organisation | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.organisation = organisation  # whose own prices count, beside the public ones
        for field in self.asked.values():
            self.fields[field.path] = form_field(field)
        self.fields[YAML] = forms.CharField(label="YAML", required=False, strip=False, widget=textarea(12))
        self.specs: list[dict[str, Any]] = []
        self.yaml_alone = False

    @property
    def spec(self) -> dict[str, Any]:
        """The first validated workload; empty if the form is not valid."""
        return self.specs[0] if self.specs else {}

    @property
    def is_in_english(self) -> bool:
        """Whether a message of the form exists in English only."""
        return any(error.code == ENGLISH for found in self.errors.as_data().values() for error in found)

    def in_english(self) -> "WorkloadForm":
        """The same entries, with their numbers as English writes them, and all messages in English."""
        data = cast(QueryDict, self.data).copy()
        for path, field in FIELDS.items():
            if path in data:
                data[path] = in_points(str(data[path]), field)
        with translation.override(reader.ENGLISH):
            form = WorkloadForm(data, self.files, organisation=self.organisation)
            form.is_valid()
        return form

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        self.read_trace(cleaned)
        errors = self.workload_errors(cleaned)
        for item in errors[:MAX_ERRORS]:
            self.place(item)
        for message in more_errors(errors):
            self.add_error(None, only_english(message))
        return cleaned

    def read_trace(self, cleaned: dict[str, Any]) -> None:
        """Moves an uploaded trace to the text field, so that it is kept when the form is shown again with errors."""
        uploaded = cleaned.pop(TRACE_FILE, None)
        if uploaded is None:
            return
        if (cleaned.get(TRACE_TEXT) or "").strip():
            self.add_error(TRACE_FILE, only_english("upload a file or paste its text, not both"))
        elif uploaded.size > MAX_TRACE_BYTES:
            message = f"is {uploaded.size:,} bytes; the limit is {MAX_TRACE_BYTES:,}. Send only the busiest hours"
            self.add_error(TRACE_FILE, only_english(message))
        else:
            try:
                text = workload.text_of_trace(read_again(uploaded), MAX_TRACE_BYTES)
            except BoundedError as error:
                self.add_error(TRACE_FILE, only_english(str(error)))
                return
            cleaned[TRACE_TEXT] = text
            data = cast(QueryDict, self.data).copy()
            data[self.add_prefix(TRACE_TEXT)] = text
            self.data = data

    def workload_errors(self, cleaned: Mapping[str, Any]) -> list[dict[str, str]]:
        """All errors. Without any, sets `specs`."""
        try:
            raw = self.combined(cleaned)
            names: list[Any] = [raw.get("model")] if self.yaml_alone else models_in(cleaned) or [raw.get("model")]
            if len(names) > MAX_MODELS:
                return [workload.error("model", f"names {len(names)} models", f"at most {MAX_MODELS}")]
            specs = [checked({**raw, "model": name} if name else raw, self.organisation) for name in names]
        except workload.WorkloadError as e:
            return e.errors
        self.specs = specs
        return []

    def combined(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        """The raw workload, of the first model: the YAML if it names a model, else the form overridden by the YAML."""
        text = (cleaned.get(YAML) or "").strip()
        extra = workload.load(text) if text else {}
        self.yaml_alone = "model" in extra
        return extra if self.yaml_alone else overlay(to_raw(cleaned, extra.get("kind")), extra)

    def value_of(self, path: str) -> str:
        """What was typed, or is shown at first."""
        return str(self[path].value() or "")

    def place(self, item: Mapping[str, str]) -> None:
        """Adds an error to its field, else to the nearest field below or above, else to the YAML or the form."""
        path = re.sub(r"\[\d+\]", "", item["field"])
        written_as_yaml = bool((self.data.get(self.add_prefix(YAML)) or "").strip())
        if item["message"].startswith("is required") and not written_as_yaml:
            by_users = self.data.get(self.add_prefix(TRAFFIC_BY)) == "users"
            needed = required_of(path, kind_named(self.data.get(self.add_prefix("kind"))), by_users=by_users)
            for name in needed:
                if name not in self.errors:
                    same = item["field"] == name
                    said = {**item, "allowed": ""} if same else {"field": name, "message": "is required", "allowed": ""}
                    text = error_text(said, name)
                    self.add_error(name, text if is_translated(said, name) else only_english(text))
            if needed:
                return
        near = [path] if path in self.fields else []
        near += [name for name in self.fields if name.startswith(f"{path}.")]
        above = [name for name in self.fields if path.startswith(f"{name}.")]
        near += sorted(above, key=len, reverse=True)  # tco.price_paths.rent before tco
        if self.yaml_alone or written_as_yaml and not self.data.get(near[0] if near else "", ""):
            near = [YAML]
        nearest = near[0] if near else ""
        text = error_text(item, nearest)
        self.add_error(nearest or None, text if is_translated(item, nearest) else only_english(text))

    def groups(self) -> Iterator[dict[str, Any]]:
        return self.laid_out(QUESTION)

    def advanced_groups(self) -> Iterator[dict[str, Any]]:
        return self.laid_out(ADVANCED)

    def laid_out(self, groups: tuple[Group, ...]) -> Iterator[dict[str, Any]]:
        usual = usual_values()
        for group in groups:
            paths = [field.path for field in group.fields]
            values = {path: self[path].value() for path in paths}
            errors = {path: [str(e) for e in self.errors[path]] for path in paths if path in self.errors}
            yield shown_group(group, values, errors, usual, f"{self.prefix}-" if self.prefix else "")

    def suggestions(self) -> dict[str, list[str]]:
        """The entries of the datalists, read once for each state of the catalog and each organization."""
        key = (revision(), self.organisation.pk if self.organisation else None)
        if key not in SUGGESTED:
            if len(SUGGESTED) >= MAX_SUGGESTED:
                SUGGESTED.clear()
            SUGGESTED[key] = read_suggestions(self.organisation)
        return SUGGESTED[key]


MAX_SUGGESTED = 64
SUGGESTED: dict[tuple[str, Any], dict[str, list[str]]] = {}


def models_by_use(organisation: Organisation | None = None) -> list[str]:
    """Models that people may ask for, those that most providers host first; shapes only of measurements left out."""
    rows = ServedModel.objects.seen_by(organisation).annotate(hosts=Count("api_prices__provider", distinct=True))
    known = [row for row in rows if not row.checkpoints.get("measured_only")]
    hosting = {row: max(row.hosts, row.checkpoints.get("hosting", {}).get("providers", 0)) for row in known}
    return [row.hf_id for row in sorted(known, key=lambda row: (-hosting[row], row.hf_id))]


def read_suggestions(organisation: Organisation | None) -> dict[str, list[str]]:
    prices = prices_seen_by(organisation)
    return {
        "models": models_by_use(organisation),
        "accelerators": list(Accelerator.objects.filter(served=True).values_list("slug", flat=True)),
        "regions": list(Region.objects.values_list("slug", flat=True)),
        "vendors": list(Accelerator.objects.values_list("vendor", flat=True).distinct().order_by("vendor")),
        "providers": list(prices.values_list("provider", flat=True).distinct().order_by("provider")),
        "offered": list(prices.values_list("region", flat=True).distinct().order_by("region")),
        "frameworks": list(Framework.objects.values_list("slug", flat=True).distinct().order_by("slug")),
        "formats": list(QuantizationMethod.objects.values_list("slug", flat=True).order_by("slug")),
        "caches": list(workload.CACHE_FORMATS),
        "curves": list(workload.CURVES),
        "currencies": [
            "USD",
            *ExchangeRate.objects.values_list("currency", flat=True).distinct().order_by("currency"),
        ],
    }


def models_in(cleaned: Mapping[str, Any]) -> list[str]:
    """The models that the form names, each once."""
    return list(dict.fromkeys(name.strip() for name in str(cleaned.get("model") or "").split(",") if name.strip()))


def checked(raw: Mapping[str, Any], organisation: Organisation | None) -> dict[str, Any]:
    """The validated workload. Raises WorkloadError."""
    try:
        spec = with_catalog_names(workload.parse(raw), organisation)
    except workload.WorkloadError as e:
        raise workload.WorkloadError(e.errors + unknown_names_in_parts(raw, organisation)) from None
    check_catalog(spec, organisation)
    return spec


def read_again(uploaded: Any) -> bytes:
    uploaded.seek(0)
    return cast(bytes, uploaded.read())


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def form_field(field: Field) -> forms.Field:
    """The Django field. Numbers are text inputs, because number inputs lose mistyped text."""
    common: dict[str, Any] = {"label": field.label, "required": False, "help_text": field.help}
    if field.reads in (ONE_OF, SWITCH):
        widget = forms.Select if field.reads == ONE_OF else forms.RadioSelect
        return forms.ChoiceField(**common, choices=field.choices, widget=widget)
    if field.reads == SOME_OF:
        return forms.MultipleChoiceField(**common, choices=field.choices, widget=forms.CheckboxSelectMultiple)
    if field.reads == FILE:
        return forms.FileField(**common, widget=forms.FileInput(attrs={"accept": ".csv,text/csv"}))
    if field.reads == LINES:
        return forms.CharField(**common, max_length=900_000, widget=textarea(4))
    if field.reads in LINED:
        return forms.CharField(**common, max_length=8000, widget=textarea(3), validators=checks_of(field))
    attrs = {"autocomplete": "off"}
    if field.reads in (NUMBER, WHOLE) and not is_share(field):  # which ends in a percent sign
        attrs["inputmode"] = "decimal" if field.reads == NUMBER else "numeric"
    if field.suggestions:
        attrs["list"] = f"{field.suggestions}-list"
    max_length = 8000 if field.reads == CURVE else 2000
    return forms.CharField(
        **common, max_length=max_length, widget=forms.TextInput(attrs=attrs), validators=checks_of(field)
    )


def textarea(rows: int) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows, "spellcheck": "false"})


def to_raw(cleaned: Mapping[str, Any], kind: object = None) -> dict[str, Any]:
    """The raw workload with the values of the filled-in fields that its kind takes; `kind` overrides the field."""
    raw: dict[str, Any] = {}
    if (kind or cleaned.get("kind")) == workload.PORTFOLIO:
        cleaned = {path: value for path, value in cleaned.items() if is_of_fleet(path)}
    asked = kind_named(kind or cleaned.get("kind"))
    for path, field in sorted(FIELDS.items(), key=lambda item: item[0].count(".")):  # tco before tco.horizon_months
        value = cleaned.get(path)
        if value in (None, "", []) or not is_asked(path, asked) or path.startswith(FORM_ONLY):
            continue
        put(raw, path.split("."), read(str(value), field) if isinstance(value, str) else value)
    if names := models_in(cleaned):
        raw["model"] = names[0]
    return with_choices(raw, cleaned, asked)


def with_choices(raw: dict[str, Any], cleaned: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """The raw workload without what the switches of the form leave out, with the latency limits that it chooses."""
    unused = {"requests": "users", "users": "requests_per_s"}.get(str(cleaned.get(TRAFFIC_BY)))
    if unused and dig(raw, f"traffic.{unused}") is not None:
        drop(raw, ["traffic", unused])
    chosen = str(cleaned.get(LATENCY) or "")
    if (chosen in LATENCIES or chosen == "none") and is_shown(LATENCY, kind):
        for path in LIMITED:
            if dig(raw, path) is not None:
                drop(raw, path.split("."))
        for path, limit_ms in zip(LIMITED, LATENCIES[chosen][1:] if chosen in LATENCIES else (), strict=False):
            put(raw, path.split("."), limit_ms)
    return raw


def put(raw: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        raw = raw.setdefault(key, {})
    raw[keys[-1]] = value


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`under` with the values of `over`, merged section by section."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = overlay(merged[key], value) if both else value
    return merged


def from_spec(spec: Mapping[str, Any], fields: Mapping[str, Field] = FIELDS) -> dict[str, Any]:
    """Initial values of a form with these fields; what has no field goes into the YAML box."""
    rest = without_defaults(spec)
    rest_of_all = without_defaults(spec)  # `rest` loses what has a field
    initial: dict[str, Any] = {}
    if isinstance(spec.get("model"), Mapping):
        return {YAML: yaml.safe_dump(rest, sort_keys=False, allow_unicode=True)}
    always = workload.Spec().model_dump(mode="json")  # values that a fresh form shows
    for path, field in fields.items():
        value = others(dig(spec, path), path) if field.reads == VALUES else dig(spec, path)
        chosen = field.reads in (ONE_OF, SOME_OF)
        if not chosen and field.reads != VALUES and dig(rest_of_all, path) is None and dig(always, path) is None:
            continue  # derived, or what a blank field stands for
        if value is None or (isinstance(value, Mapping) and field.reads not in (COUNTS, VALUES)):
            continue
        if value == {} and dig(always, path) is None:
            continue
        if field.reads in LINED:
            text = sections_text(value, field)
            if stripped(read(text, field)) != stripped(value):
                continue  # such as a name of two lines, which only the YAML can hold
            initial[path] = text
        else:
            initial[path] = value if field.reads == SOME_OF else typed(value, field)
        for keys in [[*path.split("."), key] for key in value] if field.reads == VALUES else [path.split(".")]:
            drop(rest, keys)
    if rest:
        initial[YAML] = yaml.safe_dump(rest, sort_keys=False, allow_unicode=True)
    return initial | (choices_of(spec, initial) if LATENCY in fields else {})


def choices_of(spec: Mapping[str, Any], initial: dict[str, Any]) -> dict[str, str]:
    """How the form's switches stand for this workload; takes limits that have a name out of `initial`."""
    kind = kind_named(spec.get("kind"))
    if kind.trains:
        return {}
    limits = [dig(spec, path) for path in LIMITED]
    named = [key for key, (_, ttft_ms, tpot_ms) in LATENCIES.items() if limits == [ttft_ms, tpot_ms, None]]
    if named and is_shown(LATENCY, kind):
        for path in LIMITED:
            initial.pop(path, None)
    stated = named[0] if named and is_shown(LATENCY, kind) else "own" if any(limits) else "none"
    return {TRAFFIC_BY: "users" if dig(spec, "traffic.users") else "requests", LATENCY: stated}


def others(section: Any, path: str) -> dict[str, Any]:
    """The section without the keys that have their own fields, or fields of parts."""
    own = {name.removeprefix(f"{path}.").partition(".")[0] for name in FIELDS if name.startswith(f"{path}.")}
    return {key: value for key, value in (section or {}).items() if key not in own}


def as_file(spec: Mapping[str, Any]) -> str:
    """The workload file (YAML) of a validated workload, without defaults and derived values."""
    return yaml.safe_dump(without_defaults(spec), sort_keys=False, allow_unicode=True, width=120)


@cache
def usual_values() -> dict[str, Any]:
    """The value of each field of a fresh form; `defaults` where a field starts without one: the first choice."""
    runs = workload.run_defaults()
    first = {f.path: dig(runs, f.path) or f.choices[0][0] for f in FIELDS.values() if f.reads in (ONE_OF, SWITCH)}
    return first | defaults()


def defaults() -> dict[str, Any]:
    """The form's default values."""
    initial = from_spec(workload.Spec().model_dump(mode="json"))
    return {path: value for path, value in initial.items() if path != "name"} | {LATENCY: next(iter(LATENCIES))}


def without_defaults(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The workload without values that are defaults, or that follow from others when they are left out."""
    defaults = workload.Spec().model_dump(mode="json")
    kept = prune(spec, {**defaults, **workload.section_defaults(), **workload.run_defaults()})
    for path in workload.derived_paths(spec):
        if dig(kept, path) is not None:
            drop(kept, path.split("."))
    return kept


def prune(value: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    kept = {}
    for key, item in value.items():
        default = defaults.get(key)
        if isinstance(item, Mapping):
            item = prune(item, default if isinstance(default, Mapping) else {})
        if item not in (None, {}, []) and item != default:
            kept[key] = item
    return kept


def dig(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def drop(raw: dict[str, Any], keys: list[str]) -> None:
    """Removes a path, and sections that become empty."""
    inner = raw.get(keys[0])
    if len(keys) == 1:
        raw.pop(keys[0], None)
    elif isinstance(inner, dict):
        drop(inner, keys[1:])
        if not inner:
            del raw[keys[0]]


# --- presets ----------------------------------------------------------------------------------------------------


COMMON = (
    "support-chat", "code-assistant", "long-document-rag", "summarisation",
    "reasoning", "nightly-batch", "embedding", "edge-chat",
    "pretrain-8b", "continue-70b", "finetune-lora-8b", "coding-agent",
)  # fmt: skip


def presets() -> list[dict[str, str]]:
    """Slug, name and description (first comment) of the files in fixtures/workloads, most common first."""
    entries = []
    position = {slug: k for k, slug in enumerate(COMMON)}
    for path in sorted(preset_folder().glob("*.yaml"), key=lambda p: (position.get(p.stem, len(position)), p.stem)):
        first = path.read_text().split("\n", 1)[0]
        title = first.lstrip("# ").strip() if first.startswith("#") else path.stem.replace("-", " ")
        name, _, about = title.partition(": ")
        entries.append({"slug": path.stem, "name": name, "about": sentence(about)})
    return entries


def preset(slug: str) -> dict[str, Any] | None:
    """The workload of a preset; None if there is no such preset."""
    paths = {path.stem: path for path in preset_folder().glob("*.yaml")}
    if slug not in paths:
        return None
    raw = workload.load(paths[slug].read_text())
    if isinstance(raw.get("workloads"), list):  # paths relative to the preset
        raw["workloads"] = [
            workload.load(preset_folder().joinpath(part).read_text()) if isinstance(part, str) else part
            for part in raw["workloads"]
        ]
    return workload.parse(raw)


def preset_folder() -> Path:
    return FIXTURES / "workloads"
