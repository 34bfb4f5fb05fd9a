"""The fields of the workload form, named by their path in the workload file."""

from dataclasses import dataclass
from typing import get_args

from advisor import workload
from advisor.engine.search import WEIGHTS
from advisor.engine.spec import KINDS, Kind

NUMBER, WHOLE, TEXT, LIST, ONE_OF, SOME_OF = "number", "whole", "text", "list", "one of", "some of"
LINES, COUNTS, CURVE, VALUES, FILE = "lines", "counts", "curve", "values", "file"
NUMBERS, PATH, CASES, TOKENS, SWITCH = "numbers", "price path", "cases", "tokens", "switch"


@dataclass(frozen=True)
class Field:
    """A form field: path in the workload file, label with unit, and how its text is read."""

    path: str
    label: str
    reads: str
    help: str
    choices: tuple[tuple[str, str], ...] = ()
    suggestions: str = ""  # name of the datalist


@dataclass(frozen=True)
class Group:
    """Fields under a title; `says`: in the summary of a closed group while nothing in it is set."""

    title: str
    fields: tuple[Field, ...]
    help: str = ""
    says: str = ""


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
AMERICAN = {"maths": "math", "summarisation": "summarization"}  # labels of tasks; the values keep their spelling
ON_OFF = (("yes", "yes"), ("no", "no"))
OF_SERVING = ("traffic", "slo", "batch", "adapters", "structured_output")  # refused or unused by kinds that train
# only kinds that serve
NOT_FOR_TRAINING = (
    "task", "constraints.partitions", "variants", "speculative", "disaggregated", "probe",
)  # fmt: skip
CHOSEN_BY_SERVING = ("constraints.frameworks", "constraints.formats", "constraints.kv_formats")
TRACE_TEXT, TRACE_FILE = "traffic.trace.csv", "traffic.trace.file"

TRAFFIC_BY, LATENCY, YAML = "form.traffic", "form.latency", "yaml"
FORM_ONLY = "form."  # fields that only choose what other fields mean
# Title, TTFT and TPOT in ms, p95: the limits of the examples of these uses (fixtures/workloads)
LATENCIES = {
    "chat": ("chat: 1 s, then 40 ms per token", 1000.0, 40.0),
    "interactive": ("interactive coding: 0.5 s, then 20 ms per token", 500.0, 20.0),
    "documents": ("long documents: 4 s, then 50 ms per token", 4000.0, 50.0),
}

MODEL = Group(
    "Model",
    (
        Field(
            "model",
            "Model",
            TEXT,
            "Name or Hugging Face ID. Several with commas: one answer for each",
            suggestions="models",
        ),
        Field(
            "kind",
            "What it does",
            ONE_OF,
            "Embeddings, reranking and images have no output tokens; set only the whole-answer latency",
            choices=(
                *((kind.name, kind.title) for kind in KINDS.values()),
                ("portfolio", "several workloads on one fleet (YAML only, see below)"),
            ),
        ),
    ),
)
LOAD = Group(
    "Traffic",
    (
        Field(
            TRAFFIC_BY,
            "Traffic given as",
            SWITCH,
            "",
            choices=(("requests", "requests per second"), ("users", "active users")),
        ),
        Field("traffic.requests_per_s.mean", "Requests per second, mean", NUMBER, "Averaged over the whole week"),
        Field("traffic.users.active", "Active users", NUMBER, "At peak"),
        Field(
            "traffic.users.think_s", "Think time between a user's requests, seconds", NUMBER, "Only with active users"
        ),
        Field("batch.requests", "Batch: requests", NUMBER, "Instead of requests per second and users"),
        Field("batch.deadline_hours", "Batch: deadline, hours", NUMBER, "Includes startup and the last answers"),
    ),
)
LENGTHS = Group(
    "Lengths",
    (
        Field(
            "traffic.input_tokens.mean",
            "Input tokens, mean",
            NUMBER,
            "Per request, including history and documents. For speech models: audio seconds × 50",
        ),
        Field(
            "traffic.output_tokens.mean", "Output tokens, mean", NUMBER, "Per answer, including hidden reasoning tokens"
        ),
        Field(
            "traffic.documents_per_request",
            "Documents per request",
            WHOLE,
            "For rerankers; input tokens are then one query with one document",
        ),
        Field(
            "traffic.image_output.width_px",
            "Generated images: width, pixels",
            NUMBER,
            "For image generation; usual: 1,024",
        ),
        Field("traffic.image_output.height_px", "Height, pixels", NUMBER, "Of generated images"),
        Field("traffic.image_output.steps", "Denoising steps", WHOLE, "Empty: the model's default"),
        Field("traffic.image_output.images_per_request", "Images per prompt", NUMBER, "Empty: 1"),
    ),
)
LATENCIES_GROUP = Group(
    "Latency",
    (
        Field(
            LATENCY,
            "Latency limits",
            ONE_OF,
            "p95 at peak: time to first token, then time per output token",
            choices=(
                *((key, said) for key, (said, _, _) in LATENCIES.items()),
                ("own", "my own limits"),
                ("none", "no limits"),
            ),
        ),
        Field("slo.ttft_ms_p95", "Time to first token, p95, ms", NUMBER, "From sending the request to the first token"),
        Field("slo.tpot_ms_p95", "Time per output token, p95, ms", NUMBER, "After the first token"),
        Field("slo.e2e_ms_p95", "Whole answer, p95, ms", NUMBER, "From sending to the last token"),
    ),
)


def choice(path: str, label: str, help: str, *choices: tuple[str, str]) -> Field:
    return Field(path, label, ONE_OF, help, choices=choices)


def sequence_field(section: str, sequence: str) -> Field:
    return Field(
        f"{section}.sequence_length", "Sequence length, tokens", WHOLE, f"Documents are packed. Empty: {sequence}"
    )


def deadline_field(section: str) -> Field:
    return Field(
        f"{section}.deadline_days",
        "Deadline, days",
        NUMBER,
        "From the first step to the last token, interruptions included. Empty: runs of up to 120 days",
    )


def recipe_fields(section: str, batch: str) -> tuple[Field, ...]:
    return (
        Field(
            f"{section}.global_batch_tokens",
            "Global batch, tokens",
            TOKENS,
            f"Tokens of one optimizer step on all accelerators. Empty: {batch}",
        ),
        Field(f"{section}.every_days", "Repeat every, days", NUMBER, "Empty: the run is done once"),
        choice(
            f"{section}.precision",
            "Precision",
            "Of the matrix multiplies; automatic: the fastest that the acceptable quality loss allows",
            ("auto", "automatic"),
            ("bf16", "BF16, FP32 master weights"),
            ("bf16_master", "BF16, BF16 master weights"),
            ("fp8", "FP8"),
            ("mxfp8", "MXFP8"),
            ("nvfp4", "NVFP4"),
            ("amp", "automatic mixed precision, FP32 weights"),
            ("fp32", "FP32"),
        ),
        choice(
            f"{section}.optimizer",
            "Optimizer",
            "Sets the memory of its states",
            ("adamw", "AdamW"),
            ("adamw_8bit", "AdamW, 8-bit states"),
            ("adafactor", "Adafactor"),
            ("muon", "Muon"),
            ("sgd", "SGD with momentum"),
        ),
        choice(
            f"{section}.recompute",
            "Activation recomputation",
            "Saves memory and costs time",
            ("auto", "automatic"),
            ("none", "none"),
            ("selective", "selective (attention)"),
            ("full", "full"),
        ),
    )


RUN_HELP = "2T, 100B and 50M stand for 2e12, 1e11 and 5e7."
PRETRAINING = Group(
    "Training run",
    (
        Field("training.tokens", "Tokens to train on", TOKENS, "In all, such as 2T. Empty: what the budget pays for"),
        Field(
            "training.budget_usd",
            "Or: budget for the run, USD",
            NUMBER,
            "Instead of tokens; the answer says how many tokens it pays for",
        ),
        sequence_field("training", "8,192"),
        deadline_field("training"),
    ),
    RUN_HELP,
)
TUNING = Group(
    "Fine-tuning run",
    (
        Field("finetuning.tokens", "Tokens to train on", TOKENS, "Supervised: all epochs together, such as 50M"),
        sequence_field("finetuning", "4,096"),
        deadline_field("finetuning"),
    ),
    RUN_HELP,
)
LOCATION = Group(
    "Location",
    (
        Field(
            "constraints.regions.allow",
            "Regions, countries or areas",
            LIST,
            "Several with commas; areas are eu, us and apac. Empty: anywhere",
            suggestions="offered",
        ),
    ),
)
QUESTION = (MODEL, LOAD, LENGTHS, LATENCIES_GROUP, PRETRAINING, TUNING, LOCATION)
ABOUT = Group(
    "Name and task",
    (
        Field("name", "Name of this workload", TEXT, "Shown in your list of recommendations"),
        Field(
            "task",
            "Task",
            ONE_OF,
            "Affects speculative decoding acceptance and quantization quality",
            choices=tuple((task, AMERICAN.get(task, task)) for task in get_args(workload.Task)),
        ),
        Field(
            "structured_output",
            "Structured output",
            ONE_OF,
            "Every answer follows a grammar such as a JSON schema",
            choices=(("no", "no"), ("yes", "yes")),
        ),
    ),
    says="No name; any task; free-form answers",
)
PRECISION = Group(
    "Traffic in detail",
    (
        Field(
            "traffic.input_tokens.p95",
            "Input tokens, 95th percentile",
            NUMBER,
            "Empty: every request has the mean length",
        ),
        Field(
            "traffic.output_tokens.p95",
            "Output tokens, 95th percentile",
            NUMBER,
            "Empty: every answer has the mean length",
        ),
        Field("traffic.requests_per_s.peak", "Requests per second, peak", NUMBER, "The SLO must hold at this rate"),
        Field("batch.every_hours", "Batch: repeat every, hours", NUMBER, "Empty: back to back"),
        Field(
            "traffic.load_curve",
            "Load over the week",
            CURVE,
            "flat, office_hours, or 168 numbers from Monday 0:00, separated by commas. Empty: flat",
            suggestions="curves",
        ),
        Field(
            "traffic.prefix_cache_hit_rate",
            "Prefix cache hit rate",
            NUMBER,
            "0 to 1; share of input tokens. With turns: share of the first prompt that conversations have in common",
        ),
        Field(
            "traffic.host_cache_hit_rate",
            "Host-memory cache hit rate",
            NUMBER,
            "0 to 1; additional input tokens found in a host-memory KV cache. Empty: KV offload is not estimated",
        ),
    ),
    says="Constant lengths; the same load all week; no prefix cache hits",
)
CONVERSATIONS = Group(
    "Conversations",
    (
        Field(
            "traffic.turns.count",
            "Agents and chats: turns per conversation",
            WHOLE,
            "Model calls whose prompts repeat the conversation; input tokens are then the first prompt. Empty: none",
        ),
        Field(
            "traffic.turns.added_tokens",
            "Tokens added per turn",
            NUMBER,
            "Tool result or user message; the answer before it is added too",
        ),
        Field(
            "traffic.turns.wait_s",
            "Wait between turns, seconds",
            NUMBER,
            "How long the tool or the user takes; with active users, their think time",
        ),
        Field(
            "traffic.turns.conversations_per_hour",
            "Conversations per hour",
            NUMBER,
            "Instead of requests per second",
        ),
    ),
    "For agents and chats whose prompts repeat the conversation.",
    says="None: requests are independent",
)
MEDIA = Group(
    "Audio and images",
    (
        Field(
            "traffic.audio.hours_per_hour",
            "Audio hours per hour, or live streams",
            NUMBER,
            "For speech models; replaces the token and request fields. Empty: none",
        ),
        Field("traffic.audio.clip_s", "Clip length, seconds", NUMBER, "Clips over 30 s are split; empty: 30"),
        Field("traffic.audio.words_per_minute", "Words per minute", NUMBER, "Of the transcript; empty: 150"),
        Field(
            "traffic.images.per_request",
            "Images per request",
            NUMBER,
            "For vision-language models; input tokens then count the text only. Empty: none",
        ),
        Field("traffic.images.width_px", "Image width, pixels", NUMBER, "As clients send it; empty: 1,024"),
        Field("traffic.images.height_px", "Image height, pixels", NUMBER, "As clients send it; empty: 1,024"),
    ),
    says="None: requests are text",
)
RECORDED = Group(
    "Recorded trace",
    (
        Field(
            TRACE_TEXT,
            "Or: a recorded trace (paste)",
            LINES,
            "CSV with the header arrival_s,input_tokens,output_tokens; replaces the token and request fields",
        ),
        Field(
            TRACE_FILE,
            "Or: a recorded trace (upload)",
            FILE,
            "CSV with the header arrival_s,input_tokens,output_tokens; at most 20,000 requests and 900 kB",
        ),
    ),
    says="None: random arrivals at the rate above",
)
LEVELS = Group(
    "Other service levels",
    (
        Field(
            "slo.tokens_per_s_per_user",
            "Minimum tokens per second per user",
            NUMBER,
            "At p95; 50 means 20 ms per token",
        ),
        Field(
            "slo.availability",
            "Spare replicas",
            ONE_OF,
            "Replicas that can fail while the rest still serve the peak",
            choices=(("n", "none"), ("n+1", "one (n+1)"), ("n+2", "two (n+2)"), ("2n", "double (2n)")),
        ),
        Field(
            "slo.confidence",
            "Probability of meeting them",
            NUMBER,
            "Between 0 and 1, such as 0.9; empty: an option needs to meet the limits only as estimated",
        ),
    ),
    says="No spare replicas; no minimum speed or probability",
)
RECIPE = Group(
    "Training recipe",
    (
        choice(
            "training.continued",
            "Start from",
            "Continued pre-training starts from the published weights",
            ("no", "random weights"),
            ("yes", "the published weights"),
        ),
        *recipe_fields("training", "4M"),
    ),
    says="Random weights, AdamW, automatic precision",
)
ADAPTING = Group(
    "Fine-tuning recipe",
    (
        choice(
            "finetuning.objective",
            "Objective",
            "DPO and GRPO ask for more under “Preferences and reinforcement learning”",
            ("sft", "supervised"),
            ("dpo", "DPO: preference pairs"),
            ("grpo", "GRPO: reinforcement learning"),
        ),
        choice(
            "finetuning.method",
            "Method",
            "LoRA trains adapters beside frozen weights; QLoRA keeps the frozen weights in 4 bits",
            ("full", "all weights"),
            ("lora", "LoRA"),
            ("qlora", "QLoRA"),
        ),
        Field("finetuning.rank", "Adapter rank", WHOLE, "For LoRA and QLoRA. Empty: 16"),
        *recipe_fields("finetuning", "260k"),
    ),
    says="All weights, AdamW, automatic precision",
)
PREFERENCES = Group(
    "Preferences and reinforcement learning",
    (
        Field("finetuning.pairs", "DPO: preference pairs", WHOLE, "All epochs together. A pair is two sequences"),
        Field("finetuning.iterations", "GRPO: iterations", WHOLE, "Each generates responses and updates once"),
        Field("finetuning.prompts_per_iteration", "GRPO: prompts per iteration", WHOLE, "Empty: 32"),
        Field("finetuning.samples_per_prompt", "GRPO: responses per prompt", WHOLE, "Group size. Empty: 8, as in TRL"),
        Field("finetuning.prompt_tokens", "GRPO: mean prompt, tokens", WHOLE, "Empty: 512"),
        Field("finetuning.response_tokens", "GRPO: mean response, tokens", WHOLE, "Required: it decides the cost"),
        Field(
            "finetuning.longest_response_tokens",
            "GRPO: longest response, tokens",
            WHOLE,
            "Your limit. Empty: twice the mean",
        ),
        choice(
            "finetuning.reference",
            "Reference model",
            "A frozen copy of the model; GRPO with a KL coefficient of 0 needs none",
            ("yes", "beside the model"),
            ("no", "none (GRPO)"),
            ("precomputed", "log-probabilities are precomputed (DPO)"),
        ),
        Field(
            "finetuning.reward_model",
            "GRPO: reward model",
            TEXT,
            "Model that scores the responses. Empty: rules score them",
        ),
    ),
    "For the objectives DPO and GRPO; leave empty for supervised tuning.",
    says="None: supervised tuning",
)
LIMITS = Group(
    "Budget and buying",
    (
        Field(
            "constraints.max_usd_per_month",
            "Budget, USD per month",
            NUMBER,
            "No budget: options above five times the cheapest are not recommended for speed, energy or carbon",
        ),
        Field(
            "constraints.max_capex_usd",
            "Capex limit, USD",
            NUMBER,
            "All purchases over the planning horizon. Empty: no limit; 0: buy nothing",
        ),
        Field("constraints.max_accelerators", "Maximum accelerators", WHOLE, "Including spares"),
        Field(
            "constraints.acquisition",
            "Rent, buy or hosted API",
            SOME_OF,
            "None checked: rent or buy (hosted APIs are shown for comparison only)",
            choices=(("rent", "rent"), ("own", "buy"), ("api", "hosted API (pay per token)")),
        ),
        Field(
            "constraints.quality",
            "Acceptable quality loss from quantization",
            ONE_OF,
            "Limits the weight, KV cache and training formats that are considered",
            choices=(("lossless", "none (lossless)"), ("near_lossless", "near-lossless"), ("any", "any")),
        ),
    ),
    says="Budget: none; rent, buy or hosted API",
)
OBJECTIVE = Group(
    "Objective",
    (
        Field(
            "objective",
            "Optimize for",
            ONE_OF,
            "Sorts the ranking; the best option for each other goal is shown too",
            choices=(
                ("cost", "lowest cost"),
                ("latency", "lowest latency, or fewest days of a training run"),
                ("throughput", "highest throughput per accelerator"),
                ("energy", "lowest energy"),
                ("carbon", "lowest carbon"),
                ("balanced", "balanced"),
            ),
        ),
    ),
    says="Lowest cost",
)


def allow_and_deny(key: str, names: str, suggestions: str = "") -> tuple[Field, Field]:
    """The allow and deny fields of a constraint."""
    return (
        Field(f"constraints.{key}.allow", f"Only these {names}", LIST, "Empty: all", suggestions=suggestions),
        Field(
            f"constraints.{key}.deny", f"Exclude these {names}", LIST, "Empty: none excluded", suggestions=suggestions
        ),
    )


PLACES = Group(
    "Hardware and providers",
    (
        *allow_and_deny("accelerators", "accelerators", "accelerators"),
        *allow_and_deny("vendors", "vendors", "vendors"),
        *allow_and_deny("providers", "providers", "providers"),
        Field(
            "constraints.regions.deny",
            "Exclude these regions, countries or areas",
            LIST,
            "Empty: none excluded",
            suggestions="offered",
        ),
        Field(
            "constraints.terms",
            "Rental terms to rank",
            SOME_OF,
            "None checked: on-demand; other terms are shown with each option",
            choices=tuple((term, term.replace("_", " ")) for term in get_args(workload.Term)),
        ),
        Field(
            "constraints.exclude",
            "Do not offer",
            SOME_OF,
            "None checked: consumer cards, marketplaces, second-hand, quotes, previews, weakly sourced rents",
            choices=(
                ("consumer", "consumer cards"),
                ("marketplace", "marketplaces"),
                ("second_hand", "second-hand hardware or prices"),
                ("quote", "prices by quote"),
                ("preview", "previews"),
                ("estimate", "rents known only as an estimate"),
                ("unconfirmed", "rents that could not be confirmed"),
                ("weak_price", "every weak or old price"),
                ("bookable", "capacity booked ahead"),
                ("none", "no restriction: offer all of these"),
            ),
        ),
    ),
    "Use catalog names, separated by commas.",
    says="All accelerators, vendors and providers; on-demand rents",
)
RUN = Group(
    "Software and configuration",
    (
        *allow_and_deny("frameworks", "frameworks", "frameworks"),
        *allow_and_deny("formats", "weight formats", "formats"),
        *allow_and_deny("kv_formats", "KV cache formats", "caches"),
        Field(
            "constraints.partitions",
            "GPU partitions",
            ONE_OF,
            "Hardware partitions such as MIG",
            choices=(
                ("auto", "show, but don't rank"),
                ("yes", "rank with whole GPUs"),
                ("required", "partitions only"),
                ("no", "ignore"),
            ),
        ),
        Field("adapters.count", "LoRA adapters", WHOLE, "Served with the base model, not merged; empty: none"),
        Field("adapters.rank", "Adapter rank", WHOLE, "Of the largest adapter; empty: 16"),
        Field("adapters.active", "Adapters active at once", WHOLE, "Different adapters kept in GPU memory; empty: all"),
        Field(
            "adapters.targets",
            "Adapter target modules",
            ONE_OF,
            "Expert layers have no adapters",
            choices=(("", "default (all)"), ("all", "all"), ("attention", "attention only")),
        ),
        Field(
            "variants",
            "Speculative and disaggregated variants",
            ONE_OF,
            "Speculative decoding and disaggregated serving",
            choices=(("adopt", "rank with all options"), ("show", "show with the option"), ("no", "do not test")),
        ),
        Field(
            "speculative",
            "Try speculative decoding",
            ONE_OF,
            "A draft proposes tokens; the model verifies them",
            choices=ON_OFF,
        ),
        Field(
            "disaggregated",
            "Try disaggregated serving",
            ONE_OF,
            "Prefill and decode on separate replicas",
            choices=ON_OFF,
        ),
        Field(
            "probe",
            "Measure before answering",
            ONE_OF,
            "On your organization's own machines that have the chip",
            choices=(("no", "no"), ("preferred", "if a machine is available"), ("required", "wait for a machine")),
        ),
    ),
    says="All frameworks and formats; nothing measured first",
)
SITE = Group(
    "Site and costs",
    (
        Field("owned", "Accelerators you own", COUNTS, "For example: a100-80gb-sxm: 16, h100-sxm: 8"),
        Field(
            "inventory", "Accelerators available to buy or rent", COUNTS, "Maximum per type, not counting those you own"
        ),
        Field(
            "usd_per_accelerator_hour",
            "Your own prices, USD per accelerator-hour",
            VALUES,
            "A quote or an assumption, ranked with the catalog's prices, for example: gaudi3-pcie: 1.5",
        ),
        Field(
            "price_ratios",
            "Prices of a rental term, times",
            VALUES,
            "Multiplies every price of the term, for example: spot: 0.9",
        ),
        Field("constraints.site.max_kw", "Site power limit, kW", NUMBER, "At full load, including PUE"),
        Field("constraints.site.kw_per_rack", "Power per rack, kW", NUMBER, "Servers that draw more are excluded"),
        Field(
            "constraints.site.cooling",
            "Site cooling",
            ONE_OF,
            "For servers you buy",
            choices=(("any", "any"), ("air", "air"), ("liquid", "liquid")),
        ),
        Field(
            "constraints.site.region",
            "Site region",
            TEXT,
            "Sets electricity, carbon, PUE and colocation for owned servers, for example grid-fra",
            suggestions="regions",
        ),
        Field("prices_as_of", "Prices as of", TEXT, "A date such as 2026-10-21; empty: today"),
        Field("tco.power_cap_fraction", "GPU power cap", NUMBER, "0.3 to 1; fraction of the power limit"),
        Field(
            "tco.grid_kgco2e_per_kwh",
            "Hourly grid carbon intensity, kgCO2e per kWh",
            CURVE,
            "24 numbers, or 168 from Monday 0:00, separated by commas. Empty: the region's annual mean",
        ),
    ),
    says="Nothing owned; today's prices; no power limit",
)
FORECAST = Group(
    "Traffic forecast",
    (
        Field("traffic.growth_fraction_per_year", "Traffic growth per year", NUMBER, "0.5 means 50% more each year"),
        Field(
            "traffic.ramp_months",
            "Ramp-up, months",
            WHOLE,
            "Traffic grows evenly to its full size in these months; 0: full size from the first day",
        ),
        Field(
            "traffic.seasonality",
            "Seasonal factors",
            NUMBERS,
            "12 factors on the traffic, one for each month from now, separated by commas; they repeat. Empty: none",
        ),
        Field(
            "traffic.ends_after_months",
            "Service ends after, months",
            WHOLE,
            "The service is retired then. Empty: it runs beyond the planning horizon",
        ),
    ),
    "How traffic changes over the planning horizon. The plan adds and releases capacity month by month.",
    says="No growth, no seasons",
)


def price_path(name: str, label: str, help: str) -> Field:
    return Field(f"tco.price_paths.{name}", f"Price path: {label}", PATH, help)


FINANCE = Group(
    "Finance",
    (
        Field(
            "tco.horizon_months",
            "Planning horizon, months",
            WHOLE,
            "Period for growth, total cost and payment comparisons",
        ),
        Field("tco.discount_rate", "Discount rate", NUMBER, "0 to 1, per year"),
        Field(
            "tco.currency",
            "Currency of documents",
            TEXT,
            "Such as EUR; converted at a dated rate of the catalog. Pages show USD",
            suggestions="currencies",
        ),
        Field(
            "tco",
            "Cost assumptions",
            VALUES,
            "Override the catalog's, for example: pue: 1.2, maintenance-fraction-per-year: 0.04",
        ),
        Field("tco.rent-change-per-year", "Rent change per year", NUMBER, "-0.2 means 20% less each year"),
        Field(
            "tco.electricity-change-per-year",
            "Electricity price change per year",
            NUMBER,
            "0.03 means 3% more each year",
        ),
        Field(
            "tco.hardware-price-change-per-year",
            "Hardware price change per year",
            NUMBER,
            "Of the same hardware bought later; -0.1 means 10% less each year",
        ),
        Field(
            "tco.residual-value-year-3",
            "Residual value after three years",
            NUMBER,
            "0 to 1; share of the purchase price that a sale brings",
        ),
        Field("tco.depreciation-years", "Depreciation period, years", NUMBER, "Straight line; sets the book value"),
        Field("tco.purchase-lead-months", "Delivery time of a purchase, months", NUMBER, "From order to service"),
        Field(
            "tco.minimum-engineers-own", "Minimum engineers, own hardware", NUMBER, "Full-time, however small the fleet"
        ),
        Field(
            "tco.minimum-engineers-rented", "Minimum engineers, rented", NUMBER, "Full-time, however small the fleet"
        ),
        Field(
            "tco.commitment-exit-fraction",
            "Commitments recovered on exit",
            NUMBER,
            "0 to 1; share of the remaining payments that an early exit saves",
        ),
        Field(
            "tco.income-tax-fraction",
            "Income tax",
            NUMBER,
            "0 to 1; expenses and depreciation reduce it",
        ),
        Field("tco.vat-fraction", "VAT that you cannot recover", NUMBER, "0 to 1; added to everything paid but staff"),
        price_path(
            "rent", "rents", "One point per line: month, ratio to today, low and high end, for example: 12 0.8 0.7 0.9"
        ),
        price_path(
            "electricity", "electricity", "One point per line: month, ratio to today, low and high end (optional)"
        ),
        price_path("hardware", "hardware", "One point per line: month, ratio to today, low and high end (optional)"),
        price_path(
            "resale",
            "resale value",
            "One point per line: month, ratio to the usual resale value, low and high end (optional)",
        ),
        Field(
            "tco.scenarios",
            "Your own scenarios",
            CASES,
            "One per line: a name, a colon, ratios to the expected values, for example: launch: load 2, rent 0.9",
        ),
    ),
    "Empty fields use the catalog's assumptions. Fractions: 0.12 means 12%.",
    says="The catalog's assumptions",
)
BALANCE = Group(
    "Weights and team",
    (
        *(
            Field(f"weights.{key}", f"Weight of {name}", NUMBER, f"In the balanced score; empty: {WEIGHTS[key]:g}")
            for key, name in WEIGHED.items()
        ),
        *(
            Field(f"team.{key}", f"Team experience with {name}", WHOLE, "0 (none) to 5 (expert); empty: unknown")
            for key, name in STACKS.items()
        ),
    ),
    "Weights apply to the balanced score only.",
    says="Usual weights; experience unknown",
)
FILED = Group(
    "Workload file",
    (
        Field(
            YAML,
            "YAML",
            LINES,
            "Keys here override the form above. A complete workload (one that names a model) replaces the form.",
        ),
    ),
    says="None",
)
ADVANCED = (
    LIMITS, OBJECTIVE, ABOUT, PRECISION, LEVELS, CONVERSATIONS, MEDIA, RECORDED, RECIPE, ADAPTING, PREFERENCES,
    PLACES, RUN, SITE, FORECAST, FINANCE, BALANCE, FILED,
)  # fmt: skip
FIELDS = {field.path: field for group in QUESTION + ADVANCED for field in group.fields if field.path != YAML}


def is_asked(path: str, kind: Kind) -> bool:
    """Whether this kind of workload takes the field; what other fields hold is not sent on."""
    section = path.partition(".")[0]
    if section in KINDS and KINDS[section].trains:
        return section in kind.sections
    if kind.trains and section in OF_SERVING:
        return False
    if section == "batch":
        return kind.has_deadline
    if path.startswith(("traffic.requests_per_s", "traffic.users", TRAFFIC_BY)):
        return kind.has_arrivals
    if path.startswith("traffic.output_tokens") or path in ("structured_output", LATENCY):
        return kind.generates_tokens
    return True


def is_shown(path: str, kind: Kind) -> bool:
    """Whether the page shows the field for this kind of workload: it takes it, and it can change the answer."""
    if path.startswith("traffic.image_output"):
        return kind.makes == "images"
    if path == "traffic.documents_per_request":
        return kind.makes == "scores"
    if path.startswith("adapters."):
        return kind.serves_adapters
    if path == LATENCY:
        path = "slo.tpot_ms_p95"
    if kind.trains and (path in NOT_FOR_TRAINING or path.startswith(CHOSEN_BY_SERVING)):
        return False
    unused = (path[:at] for at in [*(i for i, each in enumerate(path) if each == "."), len(path)])
    return is_asked(path, kind) and all(kind.uses(part) for part in unused)
