"""One scheduler step of a model on a lane: operators, memory, duration, power, speculative as_scheduled."""

from advisor.engine.step import duration, kv_offload
from advisor.engine.step.adapters import adapter_bytes, adapters_unsupported, resident_bytes, served_rank
from advisor.engine.step.compatibility.checkpoints import (
    broken_shard,
    is_cast,
    is_published,
    published_conversion,
    quality_of,
    worth_converting,
)
from advisor.engine.step.compatibility.start_checks import (
    needed_options,
    start_fault,
)
from advisor.engine.step.compatibility.support import (
    EMBEDDINGS,
    LORA,
    cache_unsupported,
    defaults_on,
    launchable,
    mixers_of,
    runs_on,
    spans_hosts,
    supports_model,
    supports_weights,
    too_old,
    unsupported_layout,
    weights_on,
)
from advisor.engine.step.drafts.speculative import (
    MEDUSA_POSITIONS,
    Acceptance,
    Draft,
    acceptances_of,
    draft_of,
    drafts_of,
    methods_of,
    published_draft,
    speculative_times,
    suits,
    supports_drafts,
    with_draft,
)
from advisor.engine.step.kv_offload import HostCopy, host_copy_of
from advisor.engine.step.lane import (
    Lane,
    Lanes,
    concatenate,
    fitting,
    join_lanes,
    lanes,
    memory,
    some_lanes,
    take,
    with_host_times,
)
from advisor.engine.step.lane_times import idle_s, prefill_s, step_s
from advisor.engine.step.layout import (
    KV_BYTES,
    Choice,
    has_experts,
    layouts,
    quantizes,
    unsupported,
)
from advisor.engine.step.ledger import (
    Line,
    context_tokens,
    decode_ledger,
    prefill_fraction,
    prefill_ledger,
    prompt_tokens,
)
from advisor.engine.step.media.encoder import (
    NO_CACHE_TOKENS,
    as_scheduled,
    batch_capacity_requests_per_s,
    batch_latency_p95_s,
    computed_source_tokens,
    has_decoder_beside,
    has_encoder,
    mean_source_tokens,
    model_mismatch,
    normalize,
    whole_prompts,
    yarn_warning,
)
from advisor.engine.step.media.images import images_s, vision_bytes
from advisor.engine.step.memory import Memory
from advisor.engine.step.operators import (
    Layouts,
    rank_columns,
    rank_inner,
)
from advisor.engine.step.power import Phases, phases, step_fractions
from advisor.engine.step.step_time import (
    BURST,
    CHUNKED,
    MIXED,
    NEARLY_ALL,
    POISSON,
    POLICIES,
    PREFILL_FIRST,
    STATIC,
    STEADY,
    TRACE,
    USERS,
    Array,
    Client,
    Demand,
    Load,
    Scheduler,
    StepTimes,
    load_of,
)
