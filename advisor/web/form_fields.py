"""The fields of the question's form: each is named by its path in the workload file, and says what it asks."""

from dataclasses import dataclass
from typing import get_args

from advisor import workload
from advisor.engine.search import WEIGHTS

NUMBER, WHOLE, TEXT, LIST, ONE_OF, SOME_OF = "number", "whole", "text", "list", "one of", "some of"
LINES, COUNTS, CURVE, VALUES, FILE = "lines", "counts", "curve", "values", "file"


@dataclass(frozen=True)
class Field:
    """One form field: its path in the file, its label with the unit, how its text is read."""

    path: str
    label: str
    reads: str
    help: str
    choices: tuple[tuple[str, str], ...] = ()
    suggestions: str = ""  # which datalist


@dataclass(frozen=True)
class Group:
    title: str
    fields: tuple[Field, ...]
    help: str = ""


STACKS = {
    "cuda": "CUDA",
    "rocm": "ROCm",
    "xla": "XLA",
    "neuron": "Neuron",
    "oneapi": "oneAPI",
    "synapse": "Gaudi (SynapseAI)",
    "metal": "Metal",
    "ttnn": "Tenstorrent (TT-NN)",
    "qaic": "Cloud AI 100",
    "cpu": "CPU serving",
}
WEIGHED = {
    "cost": "cost",
    "latency": "time per token",
    "energy": "power",
    "ecosystem": "ecosystem",
    "team": "team skills",
    "risk": "risk",
    "lead_time": "lead time",
    "lock_in": "lock-in",
}
ON_OFF = (("yes", "yes"), ("no", "no"))
TRACE_TEXT, TRACE_FILE = "traffic.trace.csv", "traffic.trace.file"

MODEL = Group(
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
        Field(
            "task",
            "What the tokens are for",
            ONE_OF,
            "How well drafts hold, and what a narrower format may cost",
            choices=tuple((task, task) for task in get_args(workload.Task)),
        ),
    ),
)
LENGTHS = Group(
    "Traffic",
    (
        Field(
            "traffic.input_tokens.mean",
            "Input tokens, mean",
            NUMBER,
            "Of a request, its history and documents included. Of speech: positions, 50 a second, one window",
        ),
        Field("traffic.input_tokens.p95", "Input tokens, 95th percentile", NUMBER, "Empty: always the mean"),
        Field("traffic.output_tokens.mean", "Output tokens, mean", NUMBER, "Of an answer, hidden reasoning included"),
        Field("traffic.output_tokens.p95", "Output tokens, 95th percentile", NUMBER, "Empty: always the mean"),
        Field("traffic.requests_per_s.mean", "Requests per second, mean", NUMBER, "Over all hours of the week"),
        Field("traffic.requests_per_s.peak", "Requests per second, peak", NUMBER, "What must still meet the SLO"),
        Field("traffic.users.active", "Or: active users", NUMBER, "Instead of requests per second"),
        Field("traffic.users.think_s", "Seconds between a user's requests", NUMBER, "With active users only"),
        Field(
            TRACE_TEXT,
            "Or: a recorded trace, as text",
            LINES,
            "Lines of arrival_s,input_tokens,output_tokens under that head line, instead of tokens and requests",
        ),
        Field(
            TRACE_FILE,
            "Or: the trace as a file",
            FILE,
            "CSV, head line arrival_s,input_tokens,output_tokens; at most 20,000 requests and 900 kB",
        ),
        Field("batch.requests", "Of a batch: requests", NUMBER, "Instead of requests per second and users"),
        Field("batch.deadline_hours", "Of a batch: done within hours", NUMBER, "Start and last answers included"),
        Field("batch.every_hours", "Of a batch: again every so many hours", NUMBER, "Empty: one after the other"),
        Field("traffic.prefix_cache_hit_rate", "Prefix cache hit rate", NUMBER, "0 to 1: share of input tokens"),
        Field(
            "traffic.host_cache_hit_rate",
            "Found in the host's memory besides",
            NUMBER,
            "0 to 1 of the input tokens, by a cache in host memory. Empty: offload is not estimated",
        ),
        Field(
            "traffic.load_curve",
            "Load over the week",
            CURVE,
            "flat, office_hours, or 168 numbers from Monday 0:00, separated by commas. Empty: flat",
            suggestions="curves",
        ),
    ),
    "Tokens of one request and how often requests come. A mean alone is a constant length.",
)
LEVELS = Group(
    "Service levels",
    (
        Field("slo.ttft_ms_p95", "Time to first token, p95, ms", NUMBER, "From sending the request"),
        Field("slo.tpot_ms_p95", "Time per output token, p95, ms", NUMBER, "After the first"),
        Field("slo.e2e_ms_p95", "Whole answer, p95, ms", NUMBER, "From sending to the last token"),
        Field(
            "slo.tokens_per_s_per_user", "Tokens per second per user, at least", NUMBER, "At p95; 50 is 20 ms a token"
        ),
        Field(
            "slo.availability",
            "Spare replicas",
            ONE_OF,
            "How many may fail while the peak is carried",
            choices=(("n", "none"), ("n+1", "one (n+1)"), ("n+2", "two (n+2)"), ("2n", "as many again (2n)")),
        ),
    ),
    "What 95 of 100 requests must get at peak. Leave empty what does not matter.",
)
LIMITS = Group(
    "Limits",
    (
        Field(
            "constraints.max_usd_per_month",
            "Budget, USD per month",
            NUMBER,
            "Empty: none; but speed, energy and carbon are sought within five times the cheapest",
        ),
        Field("constraints.max_accelerators", "Accelerators, at most", WHOLE, "Spare replicas included"),
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
            "Which weight and cache formats are searched",
            choices=(("lossless", "no"), ("near_lossless", "hardly (near-lossless)"), ("any", "yes")),
        ),
    ),
)
OBJECTIVE = Group(
    "Objective",
    (
        Field(
            "objective",
            "Prefer",
            ONE_OF,
            "What the ranking is by; the five views are shown beside it",
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
)
QUESTION = (MODEL, LENGTHS, LEVELS, LIMITS, OBJECTIVE)


def either_way(key: str, names: str, suggestions: str = "") -> tuple[Field, Field]:
    """Only these, and not these."""
    return (
        Field(f"constraints.{key}.allow", f"Only these {names}", LIST, "Empty: all", suggestions=suggestions),
        Field(f"constraints.{key}.deny", f"Not these {names}", LIST, "Empty: none left out", suggestions=suggestions),
    )


PLACES = Group(
    "Where and what",
    (
        *either_way("accelerators", "accelerators", "accelerators"),
        *either_way("vendors", "vendors", "vendors"),
        *either_way("providers", "providers", "providers"),
        *either_way("regions", "regions", "offered"),
        Field(
            "constraints.terms",
            "Terms of rent that are ranked",
            SOME_OF,
            "None ticked: by the hour; the others stand beside an option",
            choices=tuple((term, term.replace("_", " ")) for term in get_args(workload.Term)),
        ),
    ),
    "Names as the catalog writes them, separated by commas.",
)
RUN = Group(
    "How it is run",
    (
        *either_way("frameworks", "frameworks", "frameworks"),
        *either_way("formats", "weight formats", "formats"),
        *either_way("kv_formats", "cache formats", "caches"),
        Field(
            "constraints.partitions",
            "Chips cut into instances",
            ONE_OF,
            "Hardware slices such as MIG",
            choices=(
                ("auto", "told beside"),
                ("yes", "ranked too"),
                ("required", "only these"),
                ("no", "no"),
            ),
        ),
        Field("adapters.count", "LoRA adapters", WHOLE, "Served beside the model, none merged; empty: none"),
        Field("adapters.rank", "Rank of the adapters", WHOLE, "Of the largest; empty: 16"),
        Field("adapters.active", "Adapters in use at one moment", WHOLE, "Distinct ones, kept on the chip; empty: all"),
        Field(
            "adapters.targets",
            "Matrices that the adapters change",
            ONE_OF,
            "Experts carry none",
            choices=(("", "all, where there are adapters"), ("all", "all"), ("attention", "those of attention")),
        ),
        Field(
            "variants",
            "Speculative decoding and separate pools",
            ONE_OF,
            "Tried on the first options",
            choices=(("show", "beside the option"), ("adopt", "where they are better"), ("no", "no")),
        ),
        Field("speculative", "Try speculative decoding", ONE_OF, "Drafts that are verified", choices=ON_OFF),
        Field(
            "disaggregated", "Try separate pools", ONE_OF, "Prefill and decode on replicas of their own", choices=ON_OFF
        ),
        Field(
            "probe",
            "Measure first",
            ONE_OF,
            "On this organisation's own agents, where one has the chip",
            choices=(("no", "no"), ("preferred", "where an agent is there"), ("required", "wait for it")),
        ),
    ),
)
SITE = Group(
    "Site and money",
    (
        Field("owned", "Accelerators there already", COUNTS, "Such as a100-80gb-sxm: 16, h100-sxm: 8"),
        Field("inventory", "Accelerators that can be had, at most", COUNTS, "Beside those there already"),
        Field("constraints.site.max_kw", "Power of the site, kW", NUMBER, "All chips busy, PUE included"),
        Field("constraints.site.kw_per_rack", "Power per rack, kW", NUMBER, "A host that draws more is refused"),
        Field(
            "constraints.site.cooling",
            "Cooling of the site",
            ONE_OF,
            "Of bought hosts",
            choices=(("any", "any"), ("air", "air"), ("liquid", "liquid")),
        ),
        Field(
            "constraints.site.region",
            "Region of the site",
            TEXT,
            "Electricity, carbon, PUE and colocation of owned hosts, such as grid-fra",
            suggestions="regions",
        ),
        Field("traffic.growth_fraction_per_year", "Growth of the traffic", NUMBER, "0.5 is half as much again a year"),
        Field("prices_as_of", "Prices as known on", TEXT, "A day such as 2026-10-21; empty: today"),
        Field("tco", "Assumptions of the bill", VALUES, "Over the catalog's, such as pue: 1.2, depreciation-years: 4"),
        Field("tco.horizon_months", "Horizon, months", WHOLE, "Over which growth and ways to pay are compared"),
        Field("tco.discount_rate", "Discount rate", NUMBER, "0 to 1, per year"),
        Field("tco.power_cap_fraction", "Power cap of the chips", NUMBER, "0.3 to 1 of their power limit"),
        Field(
            "tco.grid_kgco2e_per_kwh",
            "Your grid by the hour, kgCO2e per kWh",
            CURVE,
            "24 numbers, or 168 from Monday 0:00, separated by commas. Empty: the region's yearly mean",
        ),
    ),
)
BALANCE = Group(
    "Balance and team",
    (
        *(
            Field(f"weights.{key}", f"Weight of {name}", NUMBER, f"Of the balance; empty: {WEIGHTS[key]:g}")
            for key, name in WEIGHED.items()
        ),
        *(
            Field(f"team.{key}", f"Team's {name} experience", WHOLE, "0 none to 5 expert; empty: unknown")
            for key, name in STACKS.items()
        ),
    ),
    "Weights count in the balanced view and where the balance is preferred.",
)
ADVANCED = (PLACES, RUN, SITE, BALANCE)
FIELDS = {field.path: field for group in QUESTION + ADVANCED for field in group.fields}
