"""The question as a form: each field is named by its path in the workload file, so its errors find their place."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from django import forms
from django.conf import settings

from advisor import workload
from catalog.models import Accelerator, Region, ServedModel

NUMBER, WHOLE, TEXT, LIST, ONE_OF, SOME_OF = "number", "whole", "text", "list", "one of", "some of"
LINES, COUNTS = "lines", "counts"
GROUPED = re.compile(r"^\d{1,3}([,_ \u00a0]\d{3})+(\.\d+)?$")


@dataclass(frozen=True)
class Field:
    """One form field: its path in the file, its label with the unit, how its text is read."""

    path: str
    label: str
    reads: str = NUMBER
    help: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    suggestions: str = ""  # which datalist


@dataclass(frozen=True)
class Group:
    title: str
    fields: tuple[Field, ...]
    help: str = ""


QUESTION = (
    Group(
        "Model",
        (
            Field("name", "Name of this workload", TEXT, "How you will find it again"),
            Field("model", "Model", TEXT, "An id of the catalog; type to search", suggestions="models"),
            Field(
                "kind",
                "What it does",
                ONE_OF,
                "An embedding has no output tokens; its limit is that of the whole answer",
                choices=(
                    ("serving", "generates tokens"),
                    ("embedding", "makes embeddings"),
                    ("batch", "a batch with a deadline"),
                    ("portfolio", "several workloads on one fleet (as YAML, below)"),
                ),
            ),
        ),
    ),
    Group(
        "Traffic",
        (
            Field(
                "traffic.input_tokens.mean", "Input tokens, mean", help="Of speech: positions, 50 a second, one window"
            ),
            Field("traffic.input_tokens.p95", "Input tokens, 95th percentile", help="Empty: always the mean"),
            Field("traffic.output_tokens.mean", "Output tokens, mean"),
            Field("traffic.output_tokens.p95", "Output tokens, 95th percentile", help="Empty: always the mean"),
            Field("traffic.requests_per_s.mean", "Requests per second, mean"),
            Field("traffic.requests_per_s.peak", "Requests per second, peak", help="What must still meet the SLO"),
            Field("traffic.users.active", "Or: active users", help="Instead of requests per second"),
            Field("traffic.users.think_s", "Seconds between a user's requests", help="With active users only"),
            Field(
                "traffic.trace.csv",
                "Or: a recorded trace",
                LINES,
                "Lines of arrival_s,input_tokens,output_tokens under that head line, instead of tokens and requests",
            ),
            Field("batch.requests", "Of a batch: requests", help="Instead of requests per second and users"),
            Field("batch.deadline_hours", "Of a batch: done within hours"),
            Field("batch.every_hours", "Of a batch: again every so many hours", help="Empty: one after the other"),
            Field("traffic.prefix_cache_hit_rate", "Prefix cache hit rate", help="0 to 1"),
            Field(
                "task",
                "What the tokens are for",
                ONE_OF,
                "How well drafts hold, and what a narrower format may cost",
                choices=tuple((task, task) for task in get_args(workload.Task)),
            ),
            Field(
                "traffic.load_curve",
                "Load over the week",
                ONE_OF,
                choices=(("flat", "flat"), ("office_hours", "office hours")),
            ),
        ),
        "Tokens of one request and how often requests come. A mean alone is a constant length.",
    ),
    Group(
        "Service levels",
        (
            Field("slo.ttft_ms_p95", "Time to first token, p95, ms"),
            Field("slo.tpot_ms_p95", "Time per output token, p95, ms"),
            Field("slo.e2e_ms_p95", "Whole answer, p95, ms"),
            Field("slo.tokens_per_s_per_user", "Tokens per second per user, at least"),
            Field(
                "slo.availability",
                "Spare replicas",
                ONE_OF,
                choices=(("n", "none"), ("n+1", "one (n+1)"), ("n+2", "two (n+2)"), ("2n", "as many again (2n)")),
            ),
        ),
        "What 95 of 100 requests must get at peak. Leave empty what does not matter.",
    ),
    Group(
        "Limits",
        (
            Field("constraints.max_usd_per_month", "Budget, USD per month"),
            Field("constraints.max_accelerators", "Accelerators, at most", WHOLE),
            Field(
                "constraints.acquisition",
                "How it may be had",
                SOME_OF,
                "None ticked: any",
                choices=(("rent", "rent"), ("own", "own"), ("api", "hosted API, by the token")),
            ),
            Field(
                "constraints.quality",
                "Quantization may cost quality",
                ONE_OF,
                choices=(("lossless", "no"), ("near_lossless", "hardly (near-lossless)"), ("any", "yes")),
            ),
            Field(
                "variants",
                "Speculative decoding and separate pools",
                ONE_OF,
                "Tried on the first options",
                choices=(("show", "beside the option"), ("adopt", "where they are better"), ("no", "no")),
            ),
        ),
    ),
    Group(
        "Objective",
        (
            Field(
                "objective",
                "Prefer",
                ONE_OF,
                choices=(
                    ("cost", "lowest cost"),
                    ("latency", "lowest latency"),
                    ("throughput", "most throughput per accelerator"),
                    ("energy", "least energy"),
                    ("carbon", "least carbon"),
                    ("balanced", "a balance of all"),
                ),
            ),
        ),
    ),
)
ADVANCED = (
    Group(
        "Where and what",
        (
            Field("constraints.accelerators.allow", "Only these accelerators", LIST, suggestions="accelerators"),
            Field("constraints.accelerators.deny", "Not these accelerators", LIST, suggestions="accelerators"),
            Field("constraints.vendors.allow", "Only these vendors", LIST, suggestions="vendors"),
            Field("constraints.vendors.deny", "Not these vendors", LIST, suggestions="vendors"),
            Field("constraints.providers.allow", "Only these providers", LIST),
            Field("constraints.providers.deny", "Not these providers", LIST),
            Field("constraints.regions.allow", "Only these regions", LIST),
            Field("constraints.regions.deny", "Not these regions", LIST),
        ),
        "Names as the catalog writes them, separated by commas.",
    ),
    Group(
        "Site, money, team",
        (
            Field("owned", "Accelerators there already", COUNTS, "Such as a100-80gb-sxm: 16, h100-sxm: 8"),
            Field("inventory", "Accelerators that can be had, at most", COUNTS, "Beside those there already"),
            Field("constraints.site.max_kw", "Power of the site, kW"),
            Field("constraints.site.kw_per_rack", "Power per rack, kW"),
            Field(
                "constraints.site.cooling",
                "Cooling of the site",
                ONE_OF,
                choices=(("any", "any"), ("air", "air"), ("liquid", "liquid")),
            ),
            Field("traffic.growth_fraction_per_year", "Growth of the traffic", help="0.5 is half as much again a year"),
            Field(
                "constraints.site.region",
                "Region of the site",
                TEXT,
                "Electricity, carbon, PUE and colocation of owned hosts, such as grid-fra",
                suggestions="regions",
            ),
            Field("prices_as_of", "Prices as known on", TEXT, "A day such as 2026-10-21; empty: today"),
            Field("tco.horizon_months", "Horizon, months", WHOLE),
            Field("tco.discount_rate", "Discount rate", help="0 to 1, per year"),
            Field("team.cuda", "Team's CUDA experience", WHOLE, "0 none to 5 expert"),
            Field("team.rocm", "Team's ROCm experience", WHOLE, "0 none to 5 expert"),
            Field("team.xla", "Team's XLA experience", WHOLE, "0 none to 5 expert"),
            Field("team.neuron", "Team's Neuron experience", WHOLE, "0 none to 5 expert"),
        ),
    ),
)
RECORDED = tuple(f"traffic.{side}_tokens.{kind}" for side in ("input", "output") for kind in ("mean", "p95"))
FIELDS = {field.path: field for group in QUESTION + ADVANCED for field in group.fields}
YAML = "yaml"


class WorkloadForm(forms.Form):
    """Validates through `workload.parse`; after is_valid(), `spec` is the validated workload."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in FIELDS.values():
            self.fields[field.path] = form_field(field)
        self.fields[YAML] = forms.CharField(
            required=False, strip=False, widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false"})
        )
        self.spec: dict[str, Any] = {}
        self.yaml_alone = False

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        for found in self.faults(cleaned):
            self.place(found)
        return cleaned

    def faults(self, cleaned: Mapping[str, Any]) -> list[dict[str, str]]:
        """Everything that is wrong, at once; none sets `spec`."""
        try:
            raw = self.combined(cleaned)
        except workload.WorkloadError as trouble:
            return trouble.errors
        try:
            self.spec = workload.parse(raw)
        except workload.WorkloadError as trouble:
            return trouble.errors + workload.wrong_names(raw)
        try:
            workload.check_catalog(self.spec)
        except workload.WorkloadError as trouble:
            return trouble.errors
        return []

    def combined(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        """The YAML alone when it is a whole workload (it names a model), else the form with the YAML laid over it."""
        text = (cleaned.get(YAML) or "").strip()
        extra = workload.load(text) if text else {}
        self.yaml_alone = "model" in extra
        return extra if self.yaml_alone else overlay(to_raw(cleaned), extra)

    def place(self, found: Mapping[str, str]) -> None:
        """An error beside its field: the field itself, the nearest below or above it, else the YAML or the top."""
        path = re.sub(r"\[\d+\]", "", found["field"])
        message = found["message"] + (
            f" (allowed: {found['allowed']})" if len(found["allowed"]) in range(1, 200) else ""
        )
        written_as_yaml = bool((self.data.get(self.add_prefix(YAML)) or "").strip())
        near = [name for name in self.fields if name == path or name.startswith(f"{path}.")]
        near += [name for name in self.fields if path.startswith(f"{name}.")]
        if self.yaml_alone or written_as_yaml and not self.data.get(near[0] if near else "", ""):
            near = [YAML]
        shown = message if near and near[0] == path else f"{found['field']}: {message}" if path else message
        self.add_error(near[0] if near else None, shown)

    def groups(self) -> Iterator[dict[str, Any]]:
        return self.laid_out(QUESTION)

    def advanced_groups(self) -> Iterator[dict[str, Any]]:
        return self.laid_out(ADVANCED)

    def laid_out(self, groups: tuple[Group, ...]) -> Iterator[dict[str, Any]]:
        for group in groups:
            yield {"title": group.title, "help": group.help, "fields": [self[field.path] for field in group.fields]}

    def advanced_is_open(self) -> bool:
        """Whether something below the fold is filled in or wrong."""
        names = [YAML, *(field.path for group in ADVANCED for field in group.fields)]
        usual = defaults()
        return any(self[name].errors or self[name].value() not in (None, "", usual.get(name)) for name in names)

    def suggestions(self) -> dict[str, list[str]]:
        """What the datalists offer."""
        return {
            "models": list(ServedModel.objects.values_list("hf_id", flat=True)),
            "accelerators": list(Accelerator.objects.filter(served=True).values_list("slug", flat=True)),
            "regions": list(Region.objects.values_list("slug", flat=True)),
            "vendors": list(Accelerator.objects.values_list("vendor", flat=True).distinct().order_by("vendor")),
        }


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def form_field(field: Field) -> forms.Field:
    """Text everywhere but in choices: a number input would lose what a person mistyped."""
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
    if field.reads == LINES:
        rows = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})
        return forms.CharField(label=field.label, required=False, help_text=field.help, max_length=900_000, widget=rows)
    attrs = {"autocomplete": "off"}
    if field.reads in (NUMBER, WHOLE):
        attrs["inputmode"] = "decimal" if field.reads == NUMBER else "numeric"
    if field.suggestions:
        attrs["list"] = f"{field.suggestions}-list"
    return forms.CharField(
        label=field.label, required=False, help_text=field.help, max_length=2000, widget=forms.TextInput(attrs=attrs)
    )


def to_raw(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """The workload file that the filled-in fields say."""
    raw: dict[str, Any] = {}
    for path, field in FIELDS.items():
        value = cleaned.get(path)
        if value in (None, "", []):
            continue
        put(raw, path.split("."), read(str(value), field) if isinstance(value, str) else value)
    return raw


def read(text: str, field: Field) -> object:
    """A typed value; what is not a number stays text, and validation says so."""
    if field.reads == LIST:
        return [part.strip() for part in text.split(",") if part.strip()]
    if field.reads == COUNTS:
        return counts(text)
    if field.reads not in (NUMBER, WHOLE):
        return text
    if GROUPED.match(text):
        text = re.sub(r"[,_ \u00a0]", "", text)
    try:
        number = float(text)
        return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text) else number
    except ValueError:
        return text


def counts(text: str) -> object:
    """a100: 16, h100: 8 as a section; what is not of this form stays text, and validation says so."""
    found: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, number = (piece.strip() for piece in part.partition(":"))
        if not colon:
            return text
        found[name] = int(number) if re.fullmatch(r"\d{1,9}", number) else number
    return found


def put(raw: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        raw = raw.setdefault(key, {})
    raw[keys[-1]] = value


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`, section by section."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = overlay(merged[key], value) if both else value
    return merged


def from_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Initial form values of a workload; what the fields cannot hold goes into the YAML box, so nothing is lost."""
    rest = without_defaults(spec)
    initial: dict[str, Any] = {}
    if isinstance(spec.get("model"), Mapping):
        return {YAML: yaml.safe_dump(rest, sort_keys=False, allow_unicode=True)}
    for path, field in FIELDS.items():
        value = dig(spec, path)
        if (
            value is None
            or (isinstance(value, Mapping) and field.reads != COUNTS)
            or (field.reads == ONE_OF and not isinstance(value, str))
        ):
            continue
        initial[path] = value if field.reads == SOME_OF else shown(value)
        drop(rest, path.split("."))
    recorded = bool(dig(spec, "traffic.trace"))
    for path in RECORDED if recorded else ():
        initial.pop(path, None)
    derived = spec.get("kind") == "batch" or dig(spec, "traffic.users") or recorded
    if isinstance(spec.get("traffic"), Mapping) and derived:
        for path in ("traffic.requests_per_s.mean", "traffic.requests_per_s.peak"):
            initial.pop(path, None)  # derived from the users or the deadline
    if spec.get("kind") == "embedding":
        for path in ("traffic.output_tokens.mean", "traffic.output_tokens.p95"):
            initial.pop(path, None)  # filled in: there are none
    if rest:
        initial[YAML] = yaml.safe_dump(rest, sort_keys=False, allow_unicode=True)
    return initial


def defaults() -> dict[str, Any]:
    """The form before anybody chose anything."""
    found = from_spec(workload.Spec().model_dump(mode="json"))
    return {path: value for path, value in found.items() if path != "name"}


def shown(value: object) -> str:
    """2000.0 as 2000, a list as comma-separated text, counts as a100: 16, h100: 8."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {number}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def without_defaults(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the defaults and can stand in a file."""
    defaults = workload.Spec().model_dump(mode="json")
    return prune(spec, {**defaults, "traffic": {"load_curve": "flat", "growth_fraction_per_year": 0.0}})


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
    """Removes a path and the sections that it leaves empty."""
    inner = raw.get(keys[0])
    if len(keys) == 1:
        raw.pop(keys[0], None)
    elif isinstance(inner, dict):
        drop(inner, keys[1:])
        if not inner:
            del raw[keys[0]]


# --- presets ----------------------------------------------------------------------------------------------------


def presets() -> list[dict[str, str]]:
    """The usual cases, from fixtures/workloads: slug, and name and description from the first comment."""
    found = []
    for path in sorted(preset_folder().glob("*.yaml")):
        first = path.read_text().split("\n", 1)[0]
        said = first.lstrip("# ").strip() if first.startswith("#") else path.stem.replace("-", " ")
        name, _, about = said.partition(": ")
        found.append({"slug": path.stem, "name": name, "about": sentence(about)})
    return found


def preset(slug: str) -> dict[str, Any] | None:
    """The workload of a preset, or None when there is none of that name."""
    paths = {path.stem: path for path in preset_folder().glob("*.yaml")}
    if slug not in paths:
        return None
    raw = workload.load(paths[slug].read_text())
    if isinstance(raw.get("workloads"), list):  # its files stand beside it
        raw["workloads"] = [workload.load(preset_folder().joinpath(name).read_text()) for name in raw["workloads"]]
    return workload.parse(raw)


def preset_folder() -> Path:
    return Path(settings.BASE_DIR) / "fixtures" / "workloads"
