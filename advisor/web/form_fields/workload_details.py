"""Closed groups of the form about the work: precision, conversations, images, traces, training recipes."""

from typing import get_args

from advisor import workload
from advisor.web.form_fields.fields import (
    CURVE,
    FILE,
    LINES,
    NUMBER,
    ONE_OF,
    PREFIXES,
    TASKS,
    TEXT,
    TRACE_FILE,
    TRACE_TEXT,
    VALUES,
    WHOLE,
    Field,
    Group,
    _,
    choice,
)
from advisor.web.form_fields.question import recipe_fields

ABOUT = Group(
    _("Task"),
    (
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
    says=_("Any task; free-form answers"),
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
        Field("batch.every_hours", _("Batch: repeat every, hours"), NUMBER, _("Empty: back to back")),
        Field(
            "batch.once",
            _("Batch: once"),
            ONE_OF,
            _("The batch runs once; costs cover the months until its deadline"),
            choices=(("no", _("no")), ("yes", _("yes"))),
        ),
        Field(
            "traffic.load_curve",
            _("Load over the week"),
            CURVE,
            _("flat, office_hours, or 168 numbers from Monday 0:00, separated by commas. Empty: flat"),
            suggestions="curves",
        ),
        Field(
            "traffic.burstiness",
            _("Burstiness of arrivals"),
            NUMBER,
            _("Coefficient of variation of the gaps at the peak; 1: random (Poisson). Empty: the trace's, or assumed"),
        ),
        Field(
            "traffic.peak_window_s",
            _("Window of the peak, seconds"),
            NUMBER,
            _("The peak is the mean rate of the busiest window of this length. Empty: one minute of a trace"),
        ),
        Field(
            "traffic.prefix_cache_hit_rate",
            _("Prefix cache hit rate"),
            NUMBER,
            _("Such as 30% of input tokens. With turns: share of the first prompt that conversations have in common"),
        ),
        Field(
            "traffic.prefixes",
            _("Shared prefixes"),
            PREFIXES,
            _("Instead of a hit rate, one class a line: share of requests, tokens, number of texts, as in 50% 2000 8"),
        ),
        Field(
            "traffic.host_cache_hit_rate",
            _("Host-memory cache hit rate"),
            NUMBER,
            _("Such as 10% more input tokens, in a host-memory KV cache. Empty: KV offload is not estimated"),
        ),
    ),
    says=_("Constant lengths; the same load all week; assumed burstiness; no prefix cache hits"),
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
            _("CSV or JSON lines, as published (Azure, BurstGPT, Mooncake); replaces the token and request fields"),
        ),
        Field(
            TRACE_FILE,
            _("Or: a recorded trace (upload)"),
            FILE,
            _("At most 900 kB; of more than 20,000 requests, the busiest stretch is used"),
        ),
        Field(
            "traffic.trace_columns",
            _("Columns of the trace"),
            VALUES,
            _("Only for unusual names: arrival_ms: ts, input_tokens: n_in, output_tokens: n_out"),
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
            _("Spare hosts"),
            ONE_OF,
            _("Hosts that can fail while the limits hold; empty: one for data-center machines from 1 request/s"),
            choices=(("n", _("none (n)")), ("n+1", _("one (n+1)")), ("n+2", _("two (n+2)")), ("2n", _("double (2n)"))),
        ),
        Field(
            "slo.headroom_fraction",
            _("Headroom"),
            NUMBER,
            _("Share of the capacity that the peak leaves free, such as 15%. Empty: none; bursts are simulated"),
        ),
        Field(
            "slo.confidence",
            _("Required probability of meeting the limits"),
            NUMBER,
            _("Such as 90%; none: as estimated; empty: 50%, and 80% for purchases and terms"),
        ),
    ),
    says=_("One spare host for data-center machines; 50% probability by the hour, 80% for purchases and terms"),
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
