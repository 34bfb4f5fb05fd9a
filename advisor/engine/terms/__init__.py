"""Plain input values of the engine: hardware, software, workload, offers and measured cases."""

from advisor.engine.terms.amounts import (
    HOURS_PER_MONTH,
    amount_digits,
    cents_digits,
    cost_text,
    exact_digits,
    exact_text,
    tick_text,
    unlike,
    usd_text,
)
from advisor.engine.terms.candidate_error import UNEXPECTED, CandidateError, evaluating
from advisor.engine.terms.command_template import (
    DRAFT,
    OMITTED,
    PARTS,
    SWITCHES,
    TEXTS,
    command_arguments,
    template_of,
    text_lines,
    without_parts,
)
from advisor.engine.terms.conditioned import (
    ANY,
    LAYOUT,
    LENGTHS,
    LOAD_TEST,
    MODEL,
    SITE,
    STACK,
    Correction,
    Place,
    Posterior,
    correction,
    length_class,
    release,
    scope_of,
)
from advisor.engine.terms.effort import CHOICE_FRACTION, Effort, OutOfWork
from advisor.engine.terms.machines.cold_start import ColdStart, cold_start_of
from advisor.engine.terms.machines.hardware import (
    COMPUTER,
    SERVER,
    TRAINING,
    Accelerator,
    Efficiency,
    Link,
    Overhead,
    Partition,
    Scopes,
    SocketShare,
    TrainingEfficiency,
    cut_into,
    efficiency,
    overhead,
    with_host_factor,
)
from advisor.engine.terms.machines.host import Host, WeightStore, rented_part, weight_store_of
from advisor.engine.terms.machines.offer import (
    ANYWHERE,
    ASSUMED,
    DOUBTFUL,
    MARKS,
    NEVER_FIRST,
    NO_SERVER,
    OWNED,
    OWNED_MONTHS,
    UNKNOWN_UNIT,
    WEAK_PRICE,
    Offer,
    Part,
)
from advisor.engine.terms.machines.redundancy import (
    Packing,
    host_chips,
    instances_packed,
    packing,
    replicas_left,
    spare_hosts,
)
from advisor.engine.terms.ratio_distribution import (
    CERTAIN,
    SHARES,
    RatioDistribution,
    Ratios,
    around_estimate,
    stored_distribution,
    weighted_quantile,
)
from advisor.engine.terms.rejection import QUALITY_ANY, Change, Rejection, allowing, limit_change, list_change, listed
from advisor.engine.terms.releases import MEASURED, RELEASED, at_or_below, release_key
from advisor.engine.terms.software import (
    CHIP_DEFAULTS,
    CONTEXT,
    ENCODER_STAGES,
    EXPERTS,
    FFN_WIDTH,
    IMAGES,
    KV_HEADS,
    NEEDS_OPTION,
    NO_BF16,
    NO_EXPERTS,
    RULE_LISTS,
    SOURCES,
    SPEECH,
    STAGES,
    START_CHECKS,
    STEP_TOKENS,
    TOKENS,
    UNRANKED,
    VECTORS,
    FlagLists,
    Framework,
    LaunchFacts,
    Quantization,
    SupportRule,
    chip_defaults_of,
    rules_of,
    start_rules_of,
)
from advisor.engine.terms.workloads.case import CLIENTS, KV, WEIGHTS, Case, Pool, Protocol
from advisor.engine.terms.workloads.demand import WEEK_HOURS, Trace, Users, mean_fraction, needed_by_hour, week_of
from advisor.engine.terms.workloads.kinds import (
    EMBEDDING,
    KINDS,
    SERVING,
    JobRun,
    Kind,
    Outcome,
    kind_named,
)
from advisor.engine.terms.workloads.requests import (
    Z95,
    DrawnImages,
    Images,
    Lengths,
    PrefixClass,
    Turns,
    WorkUnit,
    log_normal_sigma,
    over_turns,
)
from advisor.engine.terms.workloads.workload import (
    EXPECTED_CONFIDENCE,
    SURE_CONFIDENCE,
    Constraints,
    Rollout,
    Slo,
    TrainingTask,
    TuningObjective,
    Workload,
)
