"""The workload file: its schema, its error messages, and the trace files it refers to."""

from advisor.workload.contents import drawing_of, images_of, lengths_of, prompts_of, states_rate, unit_of
from advisor.workload.errors import explained, unknown
from advisor.workload.fields import Name, Section
from advisor.workload.fixed import deployment
from advisor.workload.fixed.deployment import Deployment, Fixed, parse_pool, parse_section
from advisor.workload.fixed.traffic import LEAST_RATE_PER_S, MAX_CONCURRENCY
from advisor.workload.fixed.training_run import (
    FIXED,
    MULTIPLE_TOKENS,
    FixedRun,
    TrainingRun,
    fixed_run,
    parse_estimate,
    rollout_of,
)
from advisor.workload.notation.machines import machines
from advisor.workload.notation.names import Names, names_of
from advisor.workload.notation.numbers import POINT, Style
from advisor.workload.notation.quantities import Quantity, Unclear, quantity_of, reads_back, text_of
from advisor.workload.notation.quantities import read as read_quantity
from advisor.workload.notation.sections import quantity_at, with_numbers
from advisor.workload.parts import check_parts
from advisor.workload.rules import (
    LOAD_TEST_HOURS,
    MOST_COMPUTERS,
    MOST_SMALL_CHIPS,
    SMALL_CHIP_BYTES,
    SWITCHED_OFF,
    confidences_of,
    spares_by_default,
    terms_of,
)
from advisor.workload.schema import (
    CACHE_FORMATS,
    CHOICES,
    CURVES,
    LONGEST_RATIO,
    PORTFOLIO,
    RUNNABLE_KINDS,
    Config,
    Spec,
    Task,
    Tco,
    Term,
    derived_paths,
    parse,
    run_defaults,
    section_defaults,
    unavailable,
)
from advisor.workload.text import (
    MAX_ERRORS,
    MAX_TEXT_BYTES,
    WorkloadError,
    check_size,
    dotted,
    error,
    fold,
    load,
    more_errors,
    past_day,
    set_path,
    with_changes,
)
from advisor.workload.title import named, unnamed
from advisor.workload.traces.columns import TRACE_COLUMNS
from advisor.workload.traces.files import with_traces
from advisor.workload.traces.requests import text_of_trace
from advisor.workload.traffic import arrival_cv_of, prefix_classes_of, trace_notes, trace_of, users_of
