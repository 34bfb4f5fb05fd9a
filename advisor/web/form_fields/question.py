"""The groups of the form that are open from the start: model, traffic, lengths, latency, training run, location."""

from advisor.engine.terms import KINDS
from advisor.web.form_fields.fields import (
    LATENCIES,
    LATENCY,
    LIST,
    NUMBER,
    ONE_OF,
    SWITCH,
    TEXT,
    TOKENS,
    TRAFFIC_BY,
    WHOLE,
    Field,
    Group,
    _,
    choice,
    filled,
)

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
            _("Decides which fields are shown"),
            choices=(
                *((kind.name, _(kind.title)) for kind in KINDS.values()),
                ("portfolio", _("several workloads on one fleet (as YAML)")),
            ),
        ),
        Field("name", _("Name"), TEXT, _("Shown in your list of recommendations")),
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
        Field(
            "traffic.requests_per_s.peak", _("Requests per second, peak"), NUMBER, _("The SLO must hold at this rate")
        ),
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
            _("Per request, with history and documents. Speech: 50 per second of audio"),
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
LIMITS = Group(
    _("Limits"),
    (
        Field(
            LATENCY,
            _("Latency limits"),
            ONE_OF,
            _("p95 at peak: first token, then each token"),
            choices=(
                *((key, said) for key, (said, _, _) in LATENCIES.items()),
                ("own", _("my own limits")),
                ("none", _("no limits")),
            ),
        ),
        Field(
            "constraints.regions.allow",
            _("Regions, countries or areas"),
            LIST,
            _("Such as eu, europe, us, apac. Empty: anywhere"),
            suggestions="offered",
        ),
        Field("constraints.max_usd_per_month", _("Budget, USD per month"), NUMBER, _("Such as $40k. Empty: no limit")),
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
            _("Of matrix multiplies; automatic: the fastest that the acceptable quality loss allows"),
            ("auto", _("automatic")),
            ("bf16", _("BF16, FP32 master weights")),
            ("bf16_master", _("BF16 weights, FP32 master copy")),
            ("bf16_pure", _("BF16 only, no FP32 copy")),
            ("fp8", _("FP8")),
            ("mxfp8", _("MXFP8")),
            ("nvfp4", _("NVFP4")),
            ("amp", _("automatic mixed precision, FP32 weights")),
            ("fp32", _("FP32")),
        ),
        choice(
            f"{section}.optimizer",
            _("Optimizer"),
            _("Determines the memory for optimizer states"),
            ("adamw", _("AdamW")),
            ("adamw_8bit", _("AdamW, 8-bit states")),
            ("adafactor", _("Adafactor")),
            ("muon", _("Muon")),
            ("sgd", _("SGD with momentum")),
        ),
        choice(
            f"{section}.recompute",
            _("Activation recomputation"),
            _("Saves memory but takes more time"),
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
            "training.tokens", _("Tokens to train on"), TOKENS, _("Total, such as 2T. Empty: what the budget pays for")
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
QUESTION = (MODEL, LOAD, LENGTHS, LIMITS, PRETRAINING, TUNING)
