"""Training: what a step stores on each chip and how long it takes."""

from advisor.engine.training.cluster import (
    DEFAULTS,
    Checkpoint,
    Cluster,
    FailureRates,
    Goodput,
    Point,
    Range,
    Spot,
    checkpoint_bytes,
    conversion_days,
    conversion_usd,
    counted_flops,
    goodput,
    goodput_range,
    interruptions,
    optimal_allocation,
    pays_until,
    run_days,
    scaling_gain,
    spot_goodput,
    storage_needed,
    straggler_factor,
    write_checkpoint,
)
from advisor.engine.training.communication import ring_s
from advisor.engine.training.flops import model_flops, peak_flops_per_s, recomputed_flops
from advisor.engine.training.frameworks.differences import Difference, differences
from advisor.engine.training.frameworks.fsdp import WITH_TRITON
from advisor.engine.training.frameworks.known import (
    ADAPTERS_FIRST,
    FRAMEWORKS,
    OFFLOADS_WITH,
    FrameworkName,
    TrainingFramework,
    frameworks_of,
    launch_differences,
    searched_frameworks,
    started,
)
from advisor.engine.training.frameworks.maxtext import XLA
from advisor.engine.training.intervals import interval, run_basis, step_distribution
from advisor.engine.training.memory import PeakMemory, fits, outside_bytes, peak_memory
from advisor.engine.training.offload import host_bytes, offloads
from advisor.engine.training.operators import Line, Shape, ledger, trained_parameters
from advisor.engine.training.parallel.even_splits import heads_of, parallel_fault, pipeline_fault
from advisor.engine.training.parallel.layouts import Job, Layout, fastest, least_memory
from advisor.engine.training.rates import HostSide, Rates, rates_of
from advisor.engine.training.recipes import (
    FP32,
    PRECISIONS,
    MethodName,
    ModelCode,
    OptimizerName,
    Precision,
    code_of,
    default_code,
    has_precision,
    recipe_of,
    trains,
    unsupported_precision,
)
from advisor.engine.training.reference import forward_s, reference_bytes
from advisor.engine.training.run import (
    AMP,
    BF16,
    BF16_MASTER,
    FSDP_MIXED,
    HF,
    LORA16,
    MEGATRON,
    MEGATRON_BF16,
    PLAIN,
    Code,
    Offload,
    Parallel,
    Recipe,
    Recompute,
    Run,
)
from advisor.engine.training.step_time import HEAD, StepTime, overlap, step_time
