"""The fields of the workload form, named by their path in the workload file."""

from dataclasses import dataclass
from typing import cast, get_args

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy
from django.utils.translation import gettext_noop as known

from advisor import workload
from advisor.engine.search import WEIGHTS
from advisor.engine.spec import KINDS, Kind

NUMBER, WHOLE, TEXT, LIST, ONE_OF, SOME_OF = "number", "whole", "text", "list", "one of", "some of"
LINES, COUNTS, CURVE, VALUES, FILE = "lines", "counts", "curve", "values", "file"
NUMBERS, PATH, CASES, TOKENS, SWITCH = "numbers", "price path", "cases", "tokens", "switch"


def _(text: str) -> str:
    """Translated when a page shows it."""
    return cast(str, gettext_lazy(text))


def filled(text: str, **values: object) -> str:
    """A translated text with its placeholders filled in."""
    return cast(str, format_lazy(text, **values))


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
    "cost": _("cost"),
    "latency": _("time per token"),
    "energy": _("power"),
    "ecosystem": _("ecosystem"),
    "team": _("team skills"),
    "risk": _("risk"),
    "lead_time": _("lead time"),
    "lock_in": _("lock-in"),
}
TASKS = {  # labels of tasks; the values keep their spelling
    "any": known("any"),
    "chat": known("chat"),
    "code": known("code"),
    "maths": known("math"),
    "summarisation": known("summarization"),
    "reasoning": known("reasoning"),
    "translation": known("translation"),
    "retrieval": known("retrieval"),
}
KIND_TITLES = (
    known("text generation (online serving)"),
    known("embeddings"),
    known("reranking (query and documents to scores)"),
    known("image generation (diffusion)"),
    known("batch job with a deadline"),
    known("training (pre-training and continued pre-training)"),
    known("fine-tuning"),
)
TERMS = {
    "on_demand": known("on-demand"),
    "spot": known("spot"),
    "reserved_1y": known("1-year commitment"),
    "reserved_3y": known("3-year commitment"),
    "capacity_block": known("capacity block"),
}
ON_OFF = (("yes", _("yes")), ("no", _("no")))
OF_SERVING = ("traffic", "slo", "batch", "adapters", "structured_output")  # refused or unused by kinds that train
# only kinds that serve
NOT_FOR_TRAINING = (
    "task", "constraints.partitions", "variants", "speculative", "disaggregated", "probe",
    "use_measurements",
)  # fmt: skip
CHOSEN_BY_SERVING = ("constraints.frameworks", "constraints.formats", "constraints.kv_formats")
TRACE_TEXT, TRACE_FILE = "traffic.trace.csv", "traffic.trace.file"

TRAFFIC_BY, LATENCY, YAML = "form.traffic", "form.latency", "yaml"
FORM_ONLY = "form."  # fields that only choose what other fields mean
# Title, TTFT and TPOT in ms, p95: the limits of the examples of these uses (fixtures/workloads)
LATENCIES = {
    "chat": (_("chat: 1 s, then 40 ms per token"), 1000.0, 40.0),
    "interactive": (_("interactive coding: 0.5 s, then 20 ms per token"), 500.0, 20.0),
    "documents": (_("long documents: 4 s, then 50 ms per token"), 4000.0, 50.0),
}

MODEL = Group(
    _("Model"),
    (
        Field(
            "model",
            _("Model"),
            TEXT,
            _("Name or Hugging Face ID. Several with commas: one answer for each"),
            suggestions="models",
        ),
        Field(
            "kind",
            _("What it does"),
            ONE_OF,
            _("Embeddings, reranking and images have no output tokens; set only the whole-answer latency"),
            choices=(
                *((kind.name, _(kind.title)) for kind in KINDS.values()),
                ("portfolio", _("several workloads on one fleet (YAML only, see below)")),
            ),
        ),
    ),
)
LOAD = Group(
    _("Traffic"),
    (
        Field(
            TRAFFIC_BY,
            _("Traffic given as"),
            SWITCH,
            "",
            choices=(("requests", _("requests per second")), ("users", _("active users"))),
        ),
        Field("traffic.requests_per_s.mean", _("Requests per second, mean"), NUMBER, _("Averaged over the whole week")),
        Field("traffic.users.active", _("Active users"), NUMBER, _("At peak")),
        Field(
            "traffic.users.think_s",
            _("Think time between a user's requests, seconds"),
            NUMBER,
            _("Only with active users"),
        ),
        Field("batch.requests", _("Batch: requests"), NUMBER, _("Instead of requests per second and users")),
        Field("batch.deadline_hours", _("Batch: deadline, hours"), NUMBER, _("Includes startup and the last answers")),
    ),
)
LENGTHS = Group(
    _("Lengths"),
    (
        Field(
            "traffic.input_tokens.mean",
            _("Input tokens, mean"),
            NUMBER,
            _("Per request, including history and documents. For speech models: audio seconds × 50"),
        ),
        Field(
            "traffic.output_tokens.mean",
            _("Output tokens, mean"),
            NUMBER,
            _("Per answer, including hidden reasoning tokens"),
        ),
        Field(
            "traffic.documents_per_request",
            _("Documents per request"),
            WHOLE,
            _("For rerankers; input tokens are then one query with one document"),
        ),
        Field(
            "traffic.image_output.width_px",
            _("Generated images: width, pixels"),
            NUMBER,
            _("For image generation; usual: 1,024"),
        ),
        Field("traffic.image_output.height_px", _("Height, pixels"), NUMBER, _("Of generated images")),
        Field("traffic.image_output.steps", _("Denoising steps"), WHOLE, _("Empty: the model's default")),
        Field("traffic.image_output.images_per_request", _("Images per prompt"), NUMBER, _("Empty: 1")),
    ),
)
LATENCIES_GROUP = Group(
    _("Latency"),
    (
        Field(
            LATENCY,
            _("Latency limits"),
            ONE_OF,
            _("p95 at peak: time to first token, then time per output token"),
            choices=(
                *((key, said) for key, (said, _, _) in LATENCIES.items()),
                ("own", _("my own limits")),
                ("none", _("no limits")),
            ),
        ),
        Field(
            "slo.ttft_ms_p95",
            _("Time to first token, p95, ms"),
            NUMBER,
            _("From sending the request to the first token"),
        ),
        Field("slo.tpot_ms_p95", _("Time per output token, p95, ms"), NUMBER, _("After the first token")),
        Field("slo.e2e_ms_p95", _("Whole answer, p95, ms"), NUMBER, _("From sending to the last token")),
    ),
)


def choice(path: str, label: str, help: str, *choices: tuple[str, str]) -> Field:
    return Field(path, label, ONE_OF, help, choices=choices)


def sequence_field(section: str, sequence: str) -> Field:
    return Field(
        f"{section}.sequence_length",
        _("Sequence length, tokens"),
        WHOLE,
        filled(_("Documents are packed. Empty: {usual}"), usual=sequence),
    )


def deadline_field(section: str) -> Field:
    return Field(
        f"{section}.deadline_days",
        _("Deadline, days"),
        NUMBER,
        _("From the first step to the last token, interruptions included. Empty: runs of up to 120 days"),
    )


def recipe_fields(section: str, batch: str) -> tuple[Field, ...]:
    return (
        Field(
            f"{section}.global_batch_tokens",
            _("Global batch, tokens"),
            TOKENS,
            filled(_("Tokens of one optimizer step on all accelerators. Empty: {usual}"), usual=batch),
        ),
        Field(f"{section}.every_days", _("Repeat every, days"), NUMBER, _("Empty: the run is done once")),
        choice(
            f"{section}.precision",
            _("Precision"),
            _("Of the matrix multiplies; automatic: the fastest that the acceptable quality loss allows"),
            ("auto", _("automatic")),
            ("bf16", _("BF16, FP32 master weights")),
            ("bf16_master", _("BF16, BF16 master weights")),
            ("fp8", _("FP8")),
            ("mxfp8", _("MXFP8")),
            ("nvfp4", _("NVFP4")),
            ("amp", _("automatic mixed precision, FP32 weights")),
            ("fp32", _("FP32")),
        ),
        choice(
            f"{section}.optimizer",
            _("Optimizer"),
            _("Sets the memory of its states"),
            ("adamw", _("AdamW")),
            ("adamw_8bit", _("AdamW, 8-bit states")),
            ("adafactor", _("Adafactor")),
            ("muon", _("Muon")),
            ("sgd", _("SGD with momentum")),
        ),
        choice(
            f"{section}.recompute",
            _("Activation recomputation"),
            _("Saves memory and costs time"),
            ("auto", _("automatic")),
            ("none", _("none")),
            ("selective", _("selective (attention)")),
            ("full", _("full")),
        ),
    )


RUN_HELP = _("2T, 100B and 50M stand for 2e12, 1e11 and 5e7.")
PRETRAINING = Group(
    _("Training run"),
    (
        Field(
            "training.tokens", _("Tokens to train on"), TOKENS, _("In all, such as 2T. Empty: what the budget pays for")
        ),
        Field(
            "training.budget_usd",
            _("Or: budget for the run, USD"),
            NUMBER,
            _("Instead of tokens; the answer says how many tokens it pays for"),
        ),
        sequence_field("training", "8,192"),
        deadline_field("training"),
    ),
    RUN_HELP,
)
TUNING = Group(
    _("Fine-tuning run"),
    (
        Field("finetuning.tokens", _("Tokens to train on"), TOKENS, _("Supervised: all epochs together, such as 50M")),
        sequence_field("finetuning", "4,096"),
        deadline_field("finetuning"),
    ),
    RUN_HELP,
)
LOCATION = Group(
    _("Location"),
    (
        Field(
            "constraints.regions.allow",
            _("Regions, countries or areas"),
            LIST,
            _("Several with commas; areas are eu, us and apac. Empty: anywhere"),
            suggestions="offered",
        ),
    ),
)
QUESTION = (MODEL, LOAD, LENGTHS, LATENCIES_GROUP, PRETRAINING, TUNING, LOCATION)
ABOUT = Group(
    _("Name and task"),
    (
        Field("name", _("Name of this workload"), TEXT, _("Shown in your list of recommendations")),
        Field(
            "task",
            _("Task"),
            ONE_OF,
            _("Affects speculative decoding acceptance and quantization quality"),
            choices=tuple((task, _(TASKS.get(task, task))) for task in get_args(workload.Task)),
        ),
        Field(
            "structured_output",
            _("Structured output"),
            ONE_OF,
            _("Every answer follows a grammar such as a JSON schema"),
            choices=(("no", _("no")), ("yes", _("yes"))),
        ),
    ),
    says=_("No name; any task; free-form answers"),
)
PRECISION = Group(
    _("Traffic in detail"),
    (
        Field(
            "traffic.input_tokens.p95",
            _("Input tokens, 95th percentile"),
            NUMBER,
            _("Empty: every request has the mean length"),
        ),
        Field(
            "traffic.output_tokens.p95",
            _("Output tokens, 95th percentile"),
            NUMBER,
            _("Empty: every answer has the mean length"),
        ),
        Field(
            "traffic.requests_per_s.peak", _("Requests per second, peak"), NUMBER, _("The SLO must hold at this rate")
        ),
        Field("batch.every_hours", _("Batch: repeat every, hours"), NUMBER, _("Empty: back to back")),
        Field(
            "traffic.load_curve",
            _("Load over the week"),
            CURVE,
            _("flat, office_hours, or 168 numbers from Monday 0:00, separated by commas. Empty: flat"),
            suggestions="curves",
        ),
        Field(
            "traffic.prefix_cache_hit_rate",
            _("Prefix cache hit rate"),
            NUMBER,
            _("0 to 1; share of input tokens. With turns: share of the first prompt that conversations have in common"),
        ),
        Field(
            "traffic.host_cache_hit_rate",
            _("Host-memory cache hit rate"),
            NUMBER,
            _("0 to 1; additional input tokens found in a host-memory KV cache. Empty: KV offload is not estimated"),
        ),
    ),
    says=_("Constant lengths; the same load all week; no prefix cache hits"),
)
CONVERSATIONS = Group(
    _("Conversations"),
    (
        Field(
            "traffic.turns.count",
            _("Agents and chats: turns per conversation"),
            WHOLE,
            _("Model calls whose prompts repeat the conversation; input tokens are then the first prompt. Empty: none"),
        ),
        Field(
            "traffic.turns.added_tokens",
            _("Tokens added per turn"),
            NUMBER,
            _("Tool result or user message; the answer before it is added too"),
        ),
        Field(
            "traffic.turns.wait_s",
            _("Wait between turns, seconds"),
            NUMBER,
            _("How long the tool or the user takes; with active users, their think time"),
        ),
        Field(
            "traffic.turns.conversations_per_hour",
            _("Conversations per hour"),
            NUMBER,
            _("Instead of requests per second"),
        ),
    ),
    _("For agents and chats whose prompts repeat the conversation."),
    says=_("None: requests are independent"),
)
MEDIA = Group(
    _("Audio and images"),
    (
        Field(
            "traffic.audio.hours_per_hour",
            _("Audio hours per hour, or live streams"),
            NUMBER,
            _("For speech models; replaces the token and request fields. Empty: none"),
        ),
        Field("traffic.audio.clip_s", _("Clip length, seconds"), NUMBER, _("Clips over 30 s are split; empty: 30")),
        Field("traffic.audio.words_per_minute", _("Words per minute"), NUMBER, _("Of the transcript; empty: 150")),
        Field(
            "traffic.images.per_request",
            _("Images per request"),
            NUMBER,
            _("For vision-language models; input tokens then count the text only. Empty: none"),
        ),
        Field("traffic.images.width_px", _("Image width, pixels"), NUMBER, _("As clients send it; empty: 1,024")),
        Field("traffic.images.height_px", _("Image height, pixels"), NUMBER, _("As clients send it; empty: 1,024")),
    ),
    says=_("None: requests are text"),
)
RECORDED = Group(
    _("Recorded trace"),
    (
        Field(
            TRACE_TEXT,
            _("Or: a recorded trace (paste)"),
            LINES,
            _("CSV with the header arrival_s,input_tokens,output_tokens; replaces the token and request fields"),
        ),
        Field(
            TRACE_FILE,
            _("Or: a recorded trace (upload)"),
            FILE,
            _("CSV with the header arrival_s,input_tokens,output_tokens; at most 20,000 requests and 900 kB"),
        ),
    ),
    says=_("None: random arrivals at the rate above"),
)
LEVELS = Group(
    _("Other service levels"),
    (
        Field(
            "slo.tokens_per_s_per_user",
            _("Minimum tokens per second per user"),
            NUMBER,
            _("At p95; 50 means 20 ms per token"),
        ),
        Field(
            "slo.availability",
            _("Spare replicas"),
            ONE_OF,
            _("Replicas that can fail while the rest still serve the peak"),
            choices=(("n", _("none")), ("n+1", _("one (n+1)")), ("n+2", _("two (n+2)")), ("2n", _("double (2n)"))),
        ),
        Field(
            "slo.confidence",
            _("Probability of meeting them"),
            NUMBER,
            _("Between 0 and 1, such as 0.9; empty: an option needs to meet the limits only as estimated"),
        ),
    ),
    says=_("No spare replicas; no minimum speed or probability"),
)
RECIPE = Group(
    _("Training recipe"),
    (
        choice(
            "training.continued",
            _("Start from"),
            _("Continued pre-training starts from the published weights"),
            ("no", _("random weights")),
            ("yes", _("the published weights")),
        ),
        *recipe_fields("training", "4M"),
    ),
    says=_("Random weights, AdamW, automatic precision"),
)
ADAPTING = Group(
    _("Fine-tuning recipe"),
    (
        choice(
            "finetuning.objective",
            _("Objective"),
            _("DPO and GRPO ask for more under “Preferences and reinforcement learning”"),
            ("sft", _("supervised")),
            ("dpo", _("DPO: preference pairs")),
            ("grpo", _("GRPO: reinforcement learning")),
        ),
        choice(
            "finetuning.method",
            _("Method"),
            _("LoRA trains adapters beside frozen weights; QLoRA keeps the frozen weights in 4 bits"),
            ("full", _("all weights")),
            ("lora", _("LoRA")),
            ("qlora", _("QLoRA")),
        ),
        Field("finetuning.rank", _("Adapter rank"), WHOLE, _("For LoRA and QLoRA. Empty: 16")),
        *recipe_fields("finetuning", "260k"),
    ),
    says=_("All weights, AdamW, automatic precision"),
)
PREFERENCES = Group(
    _("Preferences and reinforcement learning"),
    (
        Field("finetuning.pairs", _("DPO: preference pairs"), WHOLE, _("All epochs together. A pair is two sequences")),
        Field("finetuning.iterations", _("GRPO: iterations"), WHOLE, _("Each generates responses and updates once")),
        Field("finetuning.prompts_per_iteration", _("GRPO: prompts per iteration"), WHOLE, _("Empty: 32")),
        Field(
            "finetuning.samples_per_prompt",
            _("GRPO: responses per prompt"),
            WHOLE,
            _("Group size. Empty: 8, as in TRL"),
        ),
        Field("finetuning.prompt_tokens", _("GRPO: mean prompt, tokens"), WHOLE, _("Empty: 512")),
        Field(
            "finetuning.response_tokens", _("GRPO: mean response, tokens"), WHOLE, _("Required: it decides the cost")
        ),
        Field(
            "finetuning.longest_response_tokens",
            _("GRPO: longest response, tokens"),
            WHOLE,
            _("Your limit. Empty: twice the mean"),
        ),
        choice(
            "finetuning.reference",
            _("Reference model"),
            _("A frozen copy of the model; GRPO with a KL coefficient of 0 needs none"),
            ("yes", _("beside the model")),
            ("no", _("none (GRPO)")),
            ("precomputed", _("log-probabilities are precomputed (DPO)")),
        ),
        Field(
            "finetuning.reward_model",
            _("GRPO: reward model"),
            TEXT,
            _("Model that scores the responses. Empty: rules score them"),
        ),
    ),
    _("For the objectives DPO and GRPO; leave empty for supervised tuning."),
    says=_("None: supervised tuning"),
)
LIMITS = Group(
    _("Budget and buying"),
    (
        Field(
            "constraints.max_usd_per_month",
            _("Budget, USD per month"),
            NUMBER,
            _("No budget: options above five times the cheapest are not recommended for speed, energy or carbon"),
        ),
        Field(
            "constraints.max_capex_usd",
            _("Capex limit, USD"),
            NUMBER,
            _("All purchases over the planning horizon. Empty: no limit; 0: buy nothing"),
        ),
        Field("constraints.max_accelerators", _("Maximum accelerators"), WHOLE, _("Including spares")),
        Field(
            "constraints.acquisition",
            _("Rent, buy or hosted API"),
            SOME_OF,
            _("None checked: rent or buy (hosted APIs are shown for comparison only)"),
            choices=(("rent", _("rent")), ("own", _("buy")), ("api", _("hosted API (pay per token)"))),
        ),
        Field(
            "constraints.quality",
            _("Acceptable quality loss from quantization"),
            ONE_OF,
            _("Limits the weight, KV cache and training formats that are considered"),
            choices=(("lossless", _("none (lossless)")), ("near_lossless", _("near-lossless")), ("any", _("any"))),
        ),
    ),
    says=_("Budget: none; rent, buy or hosted API"),
)
OBJECTIVE = Group(
    _("Objective"),
    (
        Field(
            "objective",
            _("Optimize for"),
            ONE_OF,
            _("Sorts the ranking; the best option for each other goal is shown too"),
            choices=(
                ("cost", _("lowest cost")),
                ("latency", _("lowest latency, or fewest days of a training run")),
                ("throughput", _("highest throughput per accelerator")),
                ("energy", _("lowest energy")),
                ("carbon", _("lowest carbon")),
                ("balanced", _("balanced")),
            ),
        ),
    ),
    says=_("Lowest cost"),
)


def allow_and_deny(key: str, allow: str, deny: str, suggestions: str = "") -> tuple[Field, Field]:
    """The allow and deny fields of a constraint."""
    return (
        Field(f"constraints.{key}.allow", allow, LIST, _("Empty: all"), suggestions=suggestions),
        Field(f"constraints.{key}.deny", deny, LIST, _("Empty: none excluded"), suggestions=suggestions),
    )


PLACES = Group(
    _("Hardware and providers"),
    (
        *allow_and_deny("accelerators", _("Only these accelerators"), _("Exclude these accelerators"), "accelerators"),
        *allow_and_deny("vendors", _("Only these vendors"), _("Exclude these vendors"), "vendors"),
        *allow_and_deny("providers", _("Only these providers"), _("Exclude these providers"), "providers"),
        Field(
            "constraints.regions.deny",
            _("Exclude these regions, countries or areas"),
            LIST,
            _("Empty: none excluded"),
            suggestions="offered",
        ),
        Field(
            "constraints.terms",
            _("Rental terms to rank"),
            SOME_OF,
            _("None checked: on-demand; other terms are shown with each option"),
            choices=tuple((term, _(TERMS.get(term, term.replace("_", " ")))) for term in get_args(workload.Term)),
        ),
        Field(
            "constraints.exclude",
            _("Do not offer"),
            SOME_OF,
            _("None checked: consumer cards, marketplaces, second-hand, quotes, previews, weakly sourced prices"),
            choices=(
                ("consumer", _("consumer cards")),
                ("marketplace", _("marketplaces")),
                ("second_hand", _("second-hand hardware or prices")),
                ("quote", _("prices by quote")),
                ("preview", _("previews")),
                ("estimate", _("rental prices known only as an estimate")),
                ("unconfirmed", _("rental prices that could not be confirmed")),
                ("weak_price", _("every weak or old price")),
                ("bookable", _("capacity booked ahead")),
                ("none", _("no restriction: offer all of these")),
            ),
        ),
    ),
    _("Use catalog names, separated by commas."),
    says=_("All accelerators, vendors and providers; on-demand prices"),
)
RUN = Group(
    _("Software and configuration"),
    (
        *allow_and_deny("frameworks", _("Only these frameworks"), _("Exclude these frameworks"), "frameworks"),
        *allow_and_deny("formats", _("Only these weight formats"), _("Exclude these weight formats"), "formats"),
        *allow_and_deny("kv_formats", _("Only these KV cache formats"), _("Exclude these KV cache formats"), "caches"),
        Field(
            "constraints.partitions",
            _("GPU partitions"),
            ONE_OF,
            _("Hardware partitions such as MIG"),
            choices=(
                ("auto", _("show, but don't rank")),
                ("yes", _("rank with whole GPUs")),
                ("required", _("partitions only")),
                ("no", _("ignore")),
            ),
        ),
        Field("adapters.count", _("LoRA adapters"), WHOLE, _("Served with the base model, not merged; empty: none")),
        Field("adapters.rank", _("Adapter rank"), WHOLE, _("Of the largest adapter; empty: 16")),
        Field(
            "adapters.active",
            _("Adapters active at once"),
            WHOLE,
            _("Different adapters kept in GPU memory; empty: all"),
        ),
        Field(
            "adapters.targets",
            _("Adapter target modules"),
            ONE_OF,
            _("Expert layers have no adapters"),
            choices=(("", _("default (all)")), ("all", _("all")), ("attention", _("attention only"))),
        ),
        Field(
            "variants",
            _("Speculative and disaggregated variants"),
            ONE_OF,
            _("Speculative decoding and disaggregated serving"),
            choices=(
                ("adopt", _("rank with all options")),
                ("show", _("show with the option")),
                ("no", _("do not test")),
            ),
        ),
        Field(
            "speculative",
            _("Try speculative decoding"),
            ONE_OF,
            _("A draft proposes tokens; the model verifies them"),
            choices=ON_OFF,
        ),
        Field(
            "disaggregated",
            _("Try disaggregated serving"),
            ONE_OF,
            _("Prefill and decode on separate replicas"),
            choices=ON_OFF,
        ),
        Field(
            "use_measurements",
            _("Use measurements"),
            ONE_OF,
            _("Adjust predictions with benchmark results and your own load tests; no: analytical model only"),
            choices=ON_OFF,
        ),
        Field(
            "probe",
            _("Measure before answering"),
            ONE_OF,
            _("On your organization's own machines that have the chip"),
            choices=(
                ("no", _("no")),
                ("preferred", _("if a machine is available")),
                ("required", _("wait for a machine")),
            ),
        ),
    ),
    says=_("All frameworks and formats; nothing measured first"),
)
SITE = Group(
    _("Site and costs"),
    (
        Field("owned", _("Accelerators you own"), COUNTS, _("For example: a100-80gb-sxm: 16, h100-sxm: 8")),
        Field(
            "inventory",
            _("Accelerators available to buy or rent"),
            COUNTS,
            _("Maximum per type, not counting those you own"),
        ),
        Field(
            "usd_per_accelerator_hour",
            _("Your own prices, USD per accelerator-hour"),
            VALUES,
            _("A quote or an assumption, ranked with the catalog's prices, for example: gaudi3-pcie: 1.5"),
        ),
        Field(
            "price_ratios",
            _("Prices of a rental term, times"),
            VALUES,
            _("Multiplies every price of the term, for example: spot: 0.9"),
        ),
        Field("constraints.site.max_kw", _("Site power limit, kW"), NUMBER, _("At full load, including PUE")),
        Field(
            "constraints.site.kw_per_rack", _("Power per rack, kW"), NUMBER, _("Servers that draw more are excluded")
        ),
        Field(
            "constraints.site.cooling",
            _("Site cooling"),
            ONE_OF,
            _("For servers you buy"),
            choices=(("any", _("any")), ("air", _("air")), ("liquid", _("liquid"))),
        ),
        Field(
            "constraints.site.region",
            _("Site region"),
            TEXT,
            _("Sets electricity, carbon, PUE and colocation for owned servers, for example grid-fra"),
            suggestions="regions",
        ),
        Field("prices_as_of", _("Prices as of"), TEXT, _("A date such as 2026-10-21; empty: today")),
        Field("tco.power_cap_fraction", _("GPU power cap"), NUMBER, _("0.3 to 1; fraction of the power limit")),
        Field(
            "tco.grid_kgco2e_per_kwh",
            _("Hourly grid carbon intensity, kgCO2e per kWh"),
            CURVE,
            _("24 numbers, or 168 from Monday 0:00, separated by commas. Empty: the region's annual mean"),
        ),
    ),
    says=_("Nothing owned; today's prices; no power limit"),
)
FORECAST = Group(
    _("Traffic forecast"),
    (
        Field(
            "traffic.growth_fraction_per_year", _("Traffic growth per year"), NUMBER, _("0.5 means 50% more each year")
        ),
        Field(
            "traffic.ramp_months",
            _("Ramp-up, months"),
            WHOLE,
            _("Traffic grows evenly to its full size in these months; 0: full size from the first day"),
        ),
        Field(
            "traffic.seasonality",
            _("Seasonal factors"),
            NUMBERS,
            _("12 factors on the traffic, one for each month from now, separated by commas; they repeat. Empty: none"),
        ),
        Field(
            "traffic.ends_after_months",
            _("Service ends after, months"),
            WHOLE,
            _("The service is retired then. Empty: it runs beyond the planning horizon"),
        ),
    ),
    _("How traffic changes over the planning horizon. The plan adds and releases capacity month by month."),
    says=_("No growth, no seasons"),
)


def price_path(name: str, label: str, help: str) -> Field:
    return Field(f"tco.price_paths.{name}", filled(_("Price path: {of}"), of=label), PATH, help)


FINANCE = Group(
    _("Finance"),
    (
        Field(
            "tco.horizon_months",
            _("Planning horizon, months"),
            WHOLE,
            _("Period for growth, total cost and payment comparisons"),
        ),
        Field("tco.discount_rate", _("Discount rate"), NUMBER, _("0 to 1, per year")),
        Field(
            "tco.currency",
            _("Currency of documents"),
            TEXT,
            _("Such as EUR; converted at a dated rate of the catalog. That of pages is chosen at their bottom"),
            suggestions="currencies",
        ),
        Field(
            "tco",
            _("Cost assumptions"),
            VALUES,
            _("Override the catalog's, for example: pue: 1.2, maintenance-fraction-per-year: 0.04"),
        ),
        Field("tco.rent-change-per-year", _("Rent change per year"), NUMBER, _("-0.2 means 20% less each year")),
        Field(
            "tco.electricity-change-per-year",
            _("Electricity price change per year"),
            NUMBER,
            _("0.03 means 3% more each year"),
        ),
        Field(
            "tco.hardware-price-change-per-year",
            _("Hardware price change per year"),
            NUMBER,
            _("Of the same hardware bought later; -0.1 means 10% less each year"),
        ),
        Field(
            "tco.residual-value-year-3",
            _("Residual value after three years"),
            NUMBER,
            _("0 to 1; share of the purchase price that a sale brings"),
        ),
        Field(
            "tco.depreciation-years", _("Depreciation period, years"), NUMBER, _("Straight line; sets the book value")
        ),
        Field("tco.purchase-lead-months", _("Delivery time of a purchase, months"), NUMBER, _("From order to service")),
        Field(
            "tco.minimum-engineers-own",
            _("Minimum engineers, own hardware"),
            NUMBER,
            _("Full-time, however small the fleet"),
        ),
        Field(
            "tco.minimum-engineers-rented",
            _("Minimum engineers, rented"),
            NUMBER,
            _("Full-time, however small the fleet"),
        ),
        Field(
            "tco.commitment-exit-fraction",
            _("Commitments recovered on exit"),
            NUMBER,
            _("0 to 1; share of the remaining payments that an early exit saves"),
        ),
        Field(
            "tco.income-tax-fraction",
            _("Income tax"),
            NUMBER,
            _("0 to 1; expenses and depreciation reduce it"),
        ),
        Field(
            "tco.vat-fraction",
            _("VAT that you cannot recover"),
            NUMBER,
            _("0 to 1; added to everything paid but staff"),
        ),
        price_path(
            "rent",
            _("rental prices"),
            _("One point per line: month, ratio to today, low and high end, for example: 12 0.8 0.7 0.9"),
        ),
        price_path(
            "electricity", _("electricity"), _("One point per line: month, ratio to today, low and high end (optional)")
        ),
        price_path(
            "hardware", _("hardware"), _("One point per line: month, ratio to today, low and high end (optional)")
        ),
        price_path(
            "resale",
            _("resale value"),
            _("One point per line: month, ratio to the usual resale value, low and high end (optional)"),
        ),
        Field(
            "tco.scenarios",
            _("Your own scenarios"),
            CASES,
            _("One per line: a name, a colon, ratios to the expected values, for example: launch: load 2, rent 0.9"),
        ),
    ),
    _("Empty fields use the catalog's assumptions. Fractions: 0.12 means 12%."),
    says=_("The catalog's assumptions"),
)
BALANCE = Group(
    _("Weights and team"),
    (
        *(
            Field(
                f"weights.{key}",
                filled(_("Weight of {name}"), name=name),
                NUMBER,
                filled(_("In the balanced score; empty: {usual}"), usual=f"{WEIGHTS[key]:g}"),
            )
            for key, name in WEIGHED.items()
        ),
        *(
            Field(
                f"team.{key}",
                filled(_("Team experience with {name}"), name=name),
                WHOLE,
                _("0 (none) to 5 (expert); empty: unknown"),
            )
            for key, name in STACKS.items()
        ),
    ),
    _("Weights apply to the balanced score only."),
    says=_("Usual weights; experience unknown"),
)
FILED = Group(
    _("Workload file"),
    (
        Field(
            YAML,
            _("YAML"),
            LINES,
            _("Keys here override the form above. A complete workload (one that names a model) replaces the form."),
        ),
    ),
    says=_("None"),
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
