"""The workload form. Fields are named by their path in the workload file, so that errors can be assigned to them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml
from django import forms
from django.conf import settings
from django.http import QueryDict

from advisor import workload
from advisor.engine.spec import kind_named
from advisor.inputs import check_catalog, prices_seen_by, unknown_names_in_parts, with_catalog_names
from advisor.web.form_fields import (
    ADVANCED,
    CASES,
    COUNTS,
    CURVE,
    FIELDS,
    FILE,
    LINES,
    LIST,
    NUMBER,
    NUMBERS,
    ONE_OF,
    PATH,
    QUESTION,
    SOME_OF,
    TOKENS,
    TRACE_FILE,
    TRACE_TEXT,
    VALUES,
    WHOLE,
    Field,
    Group,
    is_asked,
)
from advisor.workload import MAX_ERRORS, more_errors
from catalog.models import Accelerator, ExchangeRate, Framework, Organisation, QuantizationMethod, Region, ServedModel

SIZES = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))  # of numbers of tokens
SIZED = re.compile(r"(\d+(?:\.\d+)?) ?([TtBbMmKk])")
GROUPED = re.compile(r"^\d{1,3}([,_ \u00a0]\d{3})+(\.\d+)?$")
MAX_TRACE_BYTES = 900_000
RECORDED = tuple(f"traffic.{side}_tokens.{kind}" for side in ("input", "output") for kind in ("mean", "p95"))
YAML = "yaml"
ALWAYS_SET = ("traffic.growth_fraction_per_year", "traffic.ramp_months")  # whenever there is traffic; 0 by default
POINT = ("month", "ratio", "low", "high")  # columns of a price path
UNSET = "-"


class WorkloadForm(forms.Form):
    """Validates through `workload.parse`; after is_valid(), `spec` is the validated workload."""

    def __init__(self, *args: Any, organisation: Organisation | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.organisation = organisation  # whose own prices count, beside the public ones
        for field in FIELDS.values():
            self.fields[field.path] = form_field(field)
        self.fields[YAML] = forms.CharField(
            required=False, strip=False, widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false"})
        )
        self.spec: dict[str, Any] = {}
        self.yaml_alone = False

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        self.read_trace(cleaned)
        errors = self.workload_errors(cleaned)
        for item in errors[:MAX_ERRORS]:
            self.place(item)
        for message in more_errors(errors):
            self.add_error(None, message)
        return cleaned

    def read_trace(self, cleaned: dict[str, Any]) -> None:
        """Moves an uploaded trace to the text field, so that it is kept when the form is shown again with errors."""
        uploaded = cleaned.pop(TRACE_FILE, None)
        if uploaded is None:
            return
        if (cleaned.get(TRACE_TEXT) or "").strip():
            self.add_error(TRACE_FILE, "upload a file or paste its text, not both")
        elif uploaded.size > MAX_TRACE_BYTES:
            message = f"is {uploaded.size:,} bytes; the limit is {MAX_TRACE_BYTES:,}. Send only the busiest hours"
            self.add_error(TRACE_FILE, message)
        elif (text := utf8(uploaded.read())) is None:
            self.add_error(TRACE_FILE, "is not a UTF-8 CSV file")
        else:
            cleaned[TRACE_TEXT] = text
            data = cast(QueryDict, self.data).copy()
            data[self.add_prefix(TRACE_TEXT)] = text
            self.data = data

    def workload_errors(self, cleaned: Mapping[str, Any]) -> list[dict[str, str]]:
        """All errors. Without any, sets `spec`."""
        try:
            raw = self.combined(cleaned)
        except workload.WorkloadError as e:
            return e.errors
        try:
            self.spec = with_catalog_names(workload.parse(raw), self.organisation)
        except workload.WorkloadError as e:
            return e.errors + unknown_names_in_parts(raw, self.organisation)
        try:
            check_catalog(self.spec, self.organisation)
        except workload.WorkloadError as e:
            return e.errors
        return []

    def combined(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        """The raw workload: the YAML if it names a model, else the form overridden by the YAML."""
        text = (cleaned.get(YAML) or "").strip()
        extra = workload.load(text) if text else {}
        self.yaml_alone = "model" in extra
        return extra if self.yaml_alone else overlay(to_raw(cleaned, extra.get("kind")), extra)

    def place(self, item: Mapping[str, str]) -> None:
        """Adds an error to its field, else to the nearest field below or above, else to the YAML or the form."""
        path = re.sub(r"\[\d+\]", "", item["field"])
        message = item["message"] + (f" (allowed: {item['allowed']})" if len(item["allowed"]) in range(1, 200) else "")
        written_as_yaml = bool((self.data.get(self.add_prefix(YAML)) or "").strip())
        near = [path] if path in self.fields else []
        near += [name for name in self.fields if name.startswith(f"{path}.")]
        above = [name for name in self.fields if path.startswith(f"{name}.")]
        near += sorted(above, key=len, reverse=True)  # tco.price_paths.rent before tco
        if self.yaml_alone or written_as_yaml and not self.data.get(near[0] if near else "", ""):
            near = [YAML]
        text = message if near and near[0] == path else f"{item['field']}: {message}" if path else message
        self.add_error(near[0] if near else None, text)

    def groups(self) -> Iterator[dict[str, Any]]:
        return self.laid_out(QUESTION)

    def advanced_groups(self) -> Iterator[dict[str, Any]]:
        return self.laid_out(ADVANCED)

    def laid_out(self, groups: tuple[Group, ...]) -> Iterator[dict[str, Any]]:
        for group in groups:
            fields = [self[field.path] for field in group.fields]
            yield {"title": group.title, "help": group.help, "asks": group.asks, "fields": fields}

    def advanced_is_open(self) -> bool:
        """Whether an advanced field is filled in or has an error."""
        names = [YAML, *(field.path for group in ADVANCED for field in group.fields)]
        usual = defaults() | {path: "0" for path in ALWAYS_SET}
        return any(self[name].errors or self[name].value() not in (None, "", usual.get(name)) for name in names)

    def suggestions(self) -> dict[str, list[str]]:
        """The entries of the datalists."""
        prices = prices_seen_by(self.organisation)
        return {
            "models": list(ServedModel.objects.values_list("hf_id", flat=True)),
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


def utf8(sent: bytes) -> str | None:
    try:
        return sent.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def form_field(field: Field) -> forms.Field:
    """The Django field. Numbers are text inputs, because number inputs lose mistyped text."""
    if field.reads == ONE_OF:
        return forms.ChoiceField(
            label=field.label, required=False, choices=field.choices, help_text=field.help, widget=forms.Select
        )
    if field.reads == SOME_OF:
        return forms.MultipleChoiceField(
            label=field.label,
            required=False,
            choices=field.choices,
            help_text=field.help,
            widget=forms.CheckboxSelectMultiple,
        )
    if field.reads == FILE:
        file_input = forms.FileInput(attrs={"accept": ".csv,text/csv"})
        return forms.FileField(label=field.label, required=False, help_text=field.help, widget=file_input)
    if field.reads in (PATH, CASES):
        return forms.CharField(
            label=field.label,
            required=False,
            help_text=field.help,
            max_length=8000,
            widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
            validators=[points_only if field.reads == PATH else cases_only],
        )
    if field.reads == LINES:
        textarea = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})
        return forms.CharField(
            label=field.label, required=False, help_text=field.help, max_length=900_000, widget=textarea
        )
    attrs = {"autocomplete": "off"}
    if field.reads in (NUMBER, WHOLE):  # numbers of tokens end in a letter
        attrs["inputmode"] = "decimal" if field.reads == NUMBER else "numeric"
    if field.suggestions:
        attrs["list"] = f"{field.suggestions}-list"
    max_length = 8000 if field.reads == CURVE else 2000
    return forms.CharField(
        label=field.label,
        required=False,
        help_text=field.help,
        max_length=max_length,
        widget=forms.TextInput(attrs=attrs),
    )


def to_raw(cleaned: Mapping[str, Any], kind: object = None) -> dict[str, Any]:
    """The raw workload with the values of the filled-in fields that its kind takes; `kind` overrides the field."""
    raw: dict[str, Any] = {}
    asked = kind_named(kind or cleaned.get("kind"))
    for path, field in sorted(FIELDS.items(), key=lambda item: item[0].count(".")):  # tco before tco.horizon_months
        value = cleaned.get(path)
        if value in (None, "", []) or not is_asked(path, asked):
            continue
        put(raw, path.split("."), read(str(value), field) if isinstance(value, str) else value)
    return raw


def read(text: str, field: Field) -> object:
    """A field's value. Text that is not a number is kept for validation to report."""
    if field.reads == LIST:
        return [part.strip() for part in text.split(",") if part.strip()]
    if field.reads == COUNTS:
        return counts(text)
    if field.reads == VALUES:
        return values(text)
    if field.reads == CURVE:
        parts = words(text)
        return [number_of(part) for part in parts] if len(parts) > 1 else text
    if field.reads == NUMBERS:
        return [number_of(part) for part in words(text)]
    if field.reads == PATH:
        return [point(line) for line in lines(text)]
    if field.reads == CASES:
        return [case(line) for line in lines(text)]
    if field.reads == TOKENS:
        return tokens_of(text)
    return number_of(text) if field.reads in (NUMBER, WHOLE) else text


def tokens_of(text: str) -> object:
    """A number of tokens: 2T, 100B, 50 M, 260k, or any number."""
    sized = SIZED.fullmatch(text.strip())
    return (
        float(sized[1]) * dict(SIZES)[{"K": "k"}.get(sized[2].upper(), sized[2].upper())] if sized else number_of(text)
    )


def tokens_text(value: object) -> str:
    """2e12 as 2T; a number that has no short form in full."""
    if not isinstance(value, float | int):
        return shown(value)
    short = (f"{value / size:g}{letter}" for letter, size in SIZES if value >= size)
    return next((text for text in short if tokens_of(text) == value), shown(value))


def words(text: str) -> list[str]:
    return [part for part in re.split(r"[,;\s]+", text) if part]


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def points_only(text: str) -> None:
    """Refuses a line that is not two to four numbers."""
    for number, line in enumerate(lines(text), 1):
        parts = words(line)
        if len(parts) not in (2, 3, 4) or not all(is_number(part) or part == UNSET for part in parts):
            raise forms.ValidationError(
                f"line {number} ({line[:40]}) must be two to four numbers: month ratio low high, as in 12 0.8 0.7 0.9"
            )


def cases_only(text: str) -> None:
    """Refuses a line that is not a name with ratios."""
    for number, line in enumerate(lines(text), 1):
        name, _, ratios = halves(line)
        pairs = [part.split() for part in ratios.split(",") if part.strip()]
        if not name or not all(len(pair) == 2 and is_number(pair[1]) for pair in pairs):
            raise forms.ValidationError(
                f"line {number} ({line[:40]}) must be a name, a colon and ratios, such as launch: load 2, rent 0.9"
            )


def is_number(text: str) -> bool:
    return not isinstance(number_of(text), str)


def point(line: str) -> dict[str, object]:
    """A line of a price path: `12 0.8 0.7 0.9`; a dash stands for an end that is not set."""
    return {key: number_of(part) for key, part in zip(POINT, words(line), strict=False) if part != UNSET}


def case(line: str) -> dict[str, object]:
    """A line of the scenarios: `launch: load 2, rent 0.9`."""
    name, _, ratios = halves(line)
    pairs = (part.split() for part in ratios.split(",") if part.strip())
    return {"name": name, **{key: number_of(ratio) for key, ratio in pairs}}


def halves(line: str) -> tuple[str, str, str]:
    """Name, colon and ratios of a scenario; a name may hold colons."""
    name, colon, ratios = line.rpartition(":")
    return (name.strip(), colon, ratios) if colon else (line, "", "")


def number_of(text: str) -> object:
    if GROUPED.match(text):
        text = re.sub(r"[,_ \u00a0]", "", text)
    try:
        number = float(text)
        return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text) else number
    except ValueError:
        return text


def counts(text: str) -> object:
    """The mapping written as `a100: 16, h100: 8`. Other text is kept for validation to report."""
    section: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, number = (piece.strip() for piece in part.partition(":"))
        if not colon:
            return text
        section[name] = int(number) if re.fullmatch(r"\d{1,9}", number) else number
    return section


def values(text: str) -> dict[str, object]:
    """The mapping written as `pue: 1.2, spare-fraction: 0.1`; validation refuses a name without a number."""
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    return {name.strip(): number_of(number.strip()) for name, _, number in pairs}


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


def from_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Initial form values of a workload; what has no field goes into the YAML box."""
    rest = without_defaults(spec)
    initial: dict[str, Any] = {}
    if isinstance(spec.get("model"), Mapping):
        return {YAML: yaml.safe_dump(rest, sort_keys=False, allow_unicode=True)}
    for path, field in FIELDS.items():
        value = others(dig(spec, path), path) if field.reads == VALUES else dig(spec, path)
        if value is None or (isinstance(value, Mapping) and field.reads not in (COUNTS, VALUES)):
            continue
        if field.reads in (PATH, CASES):
            text = path_text(value) if field.reads == PATH else cases_text(value)
            if stripped(read(text, field)) != stripped(value):
                continue  # such as a name of two lines, which only the YAML can hold
            initial[path] = text
        else:
            initial[path] = value if field.reads == SOME_OF else typed(value, field)
        for keys in [[*path.split("."), key] for key in value] if field.reads == VALUES else [path.split(".")]:
            drop(rest, keys)
    recorded = bool(dig(spec, "traffic.trace"))
    if dig(spec, "traffic.image_output") and dig(spec, "traffic.input_tokens.mean") == workload.PROMPT_TOKENS["mean"]:
        for path in RECORDED[:2]:
            initial.pop(path, None)  # does not matter
    if dig(spec, "traffic.audio"):
        for path in RECORDED[:2]:
            initial.pop(path, None)  # derived from the audio
    for path in RECORDED if recorded else ():
        initial.pop(path, None)
    kind = kind_named(spec.get("kind"))
    derived = not kind.has_arrivals or dig(spec, "traffic.users") or recorded
    derived = derived or workload.states_rate(dig(spec, "traffic") or {})
    if isinstance(spec.get("traffic"), Mapping) and derived:
        for path in ("traffic.requests_per_s.mean", "traffic.requests_per_s.peak"):
            initial.pop(path, None)  # derived from users, trace, deadline or conversations
    if not kind.generates_tokens:
        for path in ("traffic.output_tokens.mean", "traffic.output_tokens.p95"):
            initial.pop(path, None)  # embeddings have none
    if rest:
        initial[YAML] = yaml.safe_dump(rest, sort_keys=False, allow_unicode=True)
    return initial


def typed(value: object, field: Field) -> str:
    return tokens_text(value) if field.reads == TOKENS else shown(value)


def others(section: Any, path: str) -> dict[str, Any]:
    """The section without the keys that have their own fields, or fields of parts."""
    own = {name.removeprefix(f"{path}.").partition(".")[0] for name in FIELDS if name.startswith(f"{path}.")}
    return {key: value for key, value in (section or {}).items() if key not in own}


def path_text(points: Any) -> str:
    """A price path as lines of month, ratio, low and high."""
    rows = [[UNSET if p.get(key) is None else shown(p[key]) for key in POINT] for p in points]
    return "\n".join(re.sub(rf"( {UNSET})+$", "", " ".join(row)) for row in rows)


def cases_text(cases: Any) -> str:
    """Scenarios as lines of a name and the ratios that differ from 1."""
    rows = [(c["name"], [f"{k} {shown(v)}" for k, v in c.items() if k != "name" and v != 1]) for c in cases]
    return "\n".join(f"{name}: {', '.join(ratios)}".rstrip() for name, ratios in rows)


def stripped(sections: Any) -> list[dict[str, Any]]:
    """The sections without what is not set and ratios of 1."""
    return [{key: value for key, value in each.items() if value is not None and value != 1} for each in sections]


def as_file(spec: Mapping[str, Any]) -> str:
    """The workload file (YAML) of a validated workload, without defaults and derived values."""
    kept = without_defaults(spec)
    traffic, derived = kept.get("traffic", {}), []
    recorded, kind = bool(dig(spec, "traffic.trace")), kind_named(spec["kind"])
    if recorded or not kind.has_arrivals or dig(spec, "traffic.users") or workload.states_rate(traffic):
        derived.append("requests_per_s")
    if recorded or dig(spec, "traffic.audio"):
        derived.append("input_tokens")
    if recorded or not kind.generates_tokens:
        derived.append("output_tokens")
    for key in derived:
        traffic.pop(key, None)
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=120)


def defaults() -> dict[str, Any]:
    """The form's default values."""
    initial = from_spec(workload.Spec().model_dump(mode="json"))
    return {path: value for path, value in initial.items() if path != "name"}


def shown(value: object) -> str:
    """A value as form text: 2000.0 as 2000, lists separated by commas, mappings as a100: 16, h100: 8."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {number}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    short = f"{value:.15g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def without_defaults(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The workload without values that are defaults."""
    defaults = workload.Spec().model_dump(mode="json")
    traffic = {"load_curve": "flat", "growth_fraction_per_year": 0.0, "ramp_months": 0}
    return prune(spec, {**defaults, "traffic": traffic, **workload.run_defaults()})


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
    return Path(settings.BASE_DIR) / "fixtures" / "workloads"
