"""Optimization techniques with their effort, risk and requirements.

`cited` is a published result for techniques that the engine does not model. It is shown for information and is in no
computed gain.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Technique:
    """An optimization technique, as shown to the user."""

    slug: str
    name: str
    effort: str
    risk: str
    needs: str
    cited: str = ""
    source: str = ""  # of `cited`, or how the technique is modeled
    loses: str = "slower at this load; the limits on latency or a later step need it"  # why it may lower tokens/s


NAIVE = Technique(
    slug="naive",
    name="Baseline: eager mode, batch size 1, 16 bits",
    effort="none",
    risk="none",
    needs="enough memory for the model in 16 bits or its published format",
)
COMPILE = Technique(
    slug="compile",
    name="torch.compile (fused kernels)",
    effort="minutes: serving frameworks do it at startup",
    risk="graph breaks, recompilation, slower startup",
    needs="no data-dependent Python in the forward pass",
    cited="2.27 times faster inference, geometric mean of more than 180 models on an A100; the step model already "
    "assumes fused kernels",
    source="Ansel et al., ASPLOS 2024, as reported at aiwiki.ai/wiki/torch_compile (read 2026-11-21)",
)
GRAPHS = Technique(
    slug="graphs",
    name="CUDA graphs or compiled programs: one launch per step",
    effort="none: on by default in serving frameworks",
    risk="memory for each captured batch size; larger steps fall back to eager mode",
    needs="batch sizes padded to captured sizes",
    source="host time per layer without graphs, from the framework's calibration",
)
FUSED_ATTENTION = Technique(
    slug="flash_attention",
    name="FlashAttention: scores stay on chip",
    effort="none: on by default if a kernel exists",
    risk="none: exact, only the order of summation changes",
    needs="a kernel for this chip and head size",
    source="arXiv:2205.14135, algorithm 0: without it scores are written and read twice; decode assumed unchanged",
)
STATIC_BATCHES = Technique(
    slug="static_batches",
    name="Static batching",
    effort="hours of custom code",
    risk="short answers wait for the longest one",
    needs="KV cache reserved at the maximum length for every request",
    source="batches that start together and end with their longest answer",
)
CONTINUOUS = Technique(
    slug="continuous_batching",
    name="Continuous batching",
    effort="none: use a serving framework instead of a custom loop",
    risk="prefill interrupts decode: limit the tokens per step",
    needs="a scheduler that adds requests between steps",
    source="Orca (OSDI 2022); simulated with the framework's scheduling policy",
    loses="prompts that join delay the decode steps of the others, so fewer requests run at once within your TPOT "
    "limit; in return no request waits for the longest answer of a batch",
)
PAGED = Technique(
    slug="paged_cache",
    name="Paged KV cache",
    effort="none: default in serving frameworks",
    risk="preemption when the cache is full",
    needs="attention kernels that read paged blocks",
    source="arXiv:2309.06180; blocks instead of reserving the maximum length",
)
FORMAT = Technique(
    slug="weights_format",
    name="Lower-precision weights",
    effort="",  # taken from the quantization method in the catalog
    risk="quality loss: see the format advice",
    needs="a checkpoint in this format, or a framework that converts while loading",
    source="bytes read and matrix rate in this format on this chip",
    loses="at this batch size its kernels are slower than those of the wider format; it saves memory",
)
SIZE = Technique(
    slug="replica_size",
    name="Replica size",
    effort="none: one flag",
    risk="none; smaller replicas have less memory for long requests",
    needs="enough memory for weights and KV cache",
    source="fewer chips communicate less; more chips hold more requests",
    loses="the chips of a larger replica wait for each other; the plan needs them for memory or latency",
)
CACHE_FORMAT = Technique(
    slug="cache_format",
    name="Lower-precision KV cache",
    effort="none, or minutes to calibrate scales",
    risk="quality over long contexts: compare answers",
    needs="attention kernels for this format",
    source="bytes per cached token",
)
PREFIX = Technique(
    slug="prefix_caching",
    name="Prefix caching",
    effort="none: one flag, or on by default",
    risk="no effect on answers; separate tenants if cache timing could leak prompts",
    needs="prompts with common prefixes; routing to the replica that has the prefix",
    source="the prefix cache hit rate of the workload",
)
DRAFTING = Technique(
    slug="speculative_decoding",
    name="Speculative decoding",
    effort="one flag with a published draft; days on one host to train one",
    risk="slower above some batch size",
    needs="spare compute, a draft that matches the traffic",
    source="arXiv:2211.17192: accepted tokens per verification step, with the cost of drafting and verification",
)
DISAGGREGATION = Technique(
    slug="disaggregation",
    name="Disaggregated prefill and decode",
    effort="days: two pools, a router, a network for KV transfer",
    risk="a wrong pool ratio leaves one pool idle; more components can fail",
    needs="several replicas and a fast network between them",
    source="both pools at matched rates; the KV cache of each prompt crosses the network",
)
OFFLOAD = Technique(
    slug="cache_offload",
    name="KV-cache offload to host memory",
    effort="minutes: one flag and host memory; hours for disks or a shared store",
    risk="no effect on answers; slower if few prompts return",
    needs="conversations or documents that return after eviction",
    cited="about twice the throughput and half the TTFT in long conversations; no gain if prefixes fit on the chip",
    source="blogs.oracle.com/ai-and-datascience/accelerate-llm-inference-lmcache-on-oci-data-science; "
    "kvgate.vercel.app (read 2026-11-21)",
)
AHEAD = Technique(
    slug="ahead_of_time",
    name="Ahead-of-time compilation and local weights",
    effort="one day: a volume with the compile cache and weights",
    risk="caches of another version or chip are ignored",
    needs="autoscaling or frequent restarts",
    cited="about half the cold start (over five minutes, with 142 s for weights and 39 s for compilation); "
    "throughput does not change",
    source="route179.dev/2026/06/30/optimizing-vllm-cold-start-with-model-streaming-and-compile-caching (read "
    "2026-11-21)",
)
