"""Training plans that the tests of launch files share."""

from advisor.engine.launch import TrainingPlace
from advisor.engine.training import FSDP_MIXED, HF, LORA16, MEGATRON, MEGATRON_BF16, Parallel, Run

RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "google": "google.com/tpu",
    "aws": "aws.amazon.com/neuron",
    "intel": "habana.ai/gaudi",
}
WIDE = Run(
    sequence_tokens=8192,
    micro_batch=1,
    micro_batches=16,
    recipe=MEGATRON_BF16,
    parallel=Parallel(dp=8, tp=4, pp=2, zero=1, sequence_parallel=True, virtual_stages=2),
    code=MEGATRON,
    recompute="selective",
)
SHARDED = Run(
    sequence_tokens=4096, micro_batch=2, micro_batches=4, recipe=FSDP_MIXED, parallel=Parallel(dp=8, zero=3), code=HF
)
ADAPTERS = Run(
    sequence_tokens=4096, micro_batch=2, micro_batches=4, recipe=LORA16, parallel=Parallel(dp=8), code=HF,
    recompute="full",
)  # fmt: skip


def place(run: Run, vendor: str = "nvidia", **changes: object) -> TrainingPlace:
    """Hosts of eight chips, or fewer chips on one host; one billion tokens and a checkpoint each half hour."""
    chips = run.parallel.chips
    values: dict[str, object] = {
        "model_id": "meta-llama/Llama-3.1-8B",
        "vendor": vendor,
        "hosts": max(chips // 8, 1),
        "chips_per_host": min(chips, 8),
        "kubernetes_resource": RESOURCES.get(vendor, ""),
        "tokens": 1e9,
        "checkpoint_interval_s": 1800.0,
        "step_s": 4.0,
    }
    return TrainingPlace(**(values | changes))  # type: ignore[arg-type]
