"""What can be done to serve faster: each technique with its effort, its risk and what it needs first.

`cited` is what somebody published, for techniques that the engine's formulas cannot tell apart; it is shown beside
the plan and enters no product.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Technique:
    slug: str
    name: str
    effort: str
    risk: str
    needs: str
    cited: str = ""
    source: str = ""  # of what is cited, or of the way it is modelled


NAIVE = Technique(
    slug="naive",
    name="Naive: eager, one request at a time, 16 bits",
    effort="none",
    risk="none",
    needs="chips that hold the model in 16 bits, or in the format it is published in",
)
COMPILE = Technique(
    slug="compile",
    name="torch.compile (fused kernels)",
    effort="minutes: serving frameworks do it while they start",
    risk="graph breaks and recompilation, longer start",
    needs="a model without data-dependent Python in its forward pass",
    cited="2.27 times in inference, geometric mean of more than 180 models on an A100; the step model counts "
    "fused kernels from the start",
    source="Ansel et al., ASPLOS 2024, as reported at aiwiki.ai/wiki/torch_compile (read 2026-11-21)",
)
GRAPHS = Technique(
    slug="graphs",
    name="CUDA graphs (or compiled programs): a step is launched at once",
    effort="none: on by default in serving frameworks",
    risk="memory for each captured size; steps beyond the largest one fall back",
    needs="batch sizes padded to those captured",
    source="host time of a layer outside graphs, from the framework's calibration",
)
FUSED_ATTENTION = Technique(
    slug="flash_attention",
    name="FlashAttention: scores never leave the chip",
    effort="none: on by default where kernels exist",
    risk="none: exact arithmetic, another order of sums",
    needs="a kernel for this chip and head size",
    source="arXiv:2205.14135, algorithm 0: scores written and read twice; decode steps are taken to be the same",
)
STATIC_BATCHES = Technique(
    slug="static_batches",
    name="Batches, each to its end",
    effort="hours in code of one's own",
    risk="short answers wait for the longest",
    needs="cache reserved for every request at the longest length",
    source="batches that start and end together, waiting for their longest answer",
)
CONTINUOUS = Technique(
    slug="continuous_batching",
    name="Continuous batching",
    effort="none: a serving framework instead of a loop",
    risk="prompts interrupt decodes: set the tokens of a step",
    needs="a scheduler that admits requests between steps",
    source="Orca (OSDI 2022); the same steps under the framework's own policy",
)
PAGED = Technique(
    slug="paged_cache",
    name="Paged KV cache",
    effort="none: how serving frameworks keep it",
    risk="preemption when the cache runs full",
    needs="attention kernels that read blocks",
    source="arXiv:2309.06180; blocks instead of a reservation at the longest length",
)
FORMAT = Technique(
    slug="weights_format",
    name="Narrower weights",
    effort="",  # of the method, from the catalog
    risk="quality: see the advice on formats",
    needs="a checkpoint in this format, or a framework that makes it while loading",
    source="bytes read and matrix rate of the format on this chip",
)
SIZE = Technique(
    slug="replica_size",
    name="Replicas of another size",
    effort="none: one flag",
    risk="none; a smaller replica has less room for long requests",
    needs="weights and cache that fit",
    source="fewer chips exchange less; more chips hold more requests",
)
CACHE_FORMAT = Technique(
    slug="cache_format",
    name="Narrower KV cache",
    effort="none, or minutes for calibrated scales",
    risk="answers over long contexts: compare them",
    needs="kernels that read it",
    source="bytes of each cached token",
)
PREFIX = Technique(
    slug="prefix_caching",
    name="Prefix caching",
    effort="none: one flag, or on by default",
    risk="none for answers; keep tenants apart where timing may leak",
    needs="prompts that start alike; requests routed to where their prefix is",
    source="the share of prompts found in the cache, as the workload states it",
)
DRAFTING = Technique(
    slug="speculative_decoding",
    name="Speculative decoding",
    effort="a flag with a published draft; days of one host to train one",
    risk="slower than without above some batch",
    needs="idle arithmetic, a draft that fits the traffic",
    source="arXiv:2211.17192: tokens shown by a verification, drafting and verification both paid",
)
DISAGGREGATION = Technique(
    slug="disaggregation",
    name="Prefill and decode on pools of their own",
    effort="days: two pools, a router, a network for caches",
    risk="a wrong ratio idles one pool; more parts that can fail",
    needs="several replicas and a fast network between them",
    source="rates of both pools matched; the cache of a prompt crosses the network",
)
OFFLOAD = Technique(
    slug="cache_offload",
    name="KV cache offloaded to the host's memory",
    effort="minutes: one flag and the host's memory; hours for disks or a shared store",
    risk="none for answers; slower where little returns",
    needs="conversations or documents that come back after they were evicted",
    cited="about twice the throughput and half the TTFT in long conversations, nothing where prefixes still fit "
    "the chip",
    source="blogs.oracle.com/ai-and-datascience/accelerate-llm-inference-lmcache-on-oci-data-science; "
    "kvgate.vercel.app (read 2026-11-21)",
)
AHEAD = Technique(
    slug="ahead_of_time",
    name="Compiled ahead of time, weights kept near",
    effort="a day: a volume with the compile cache and the weights",
    risk="caches of another version or chip are not used",
    needs="autoscaling or restarts that matter",
    cited="a cold start about halved (five minutes and more, of which 142 s weights and 39 s compiling); not a "
    "matter of throughput",
    source="route179.dev/2026/06/30/optimizing-vllm-cold-start-with-model-streaming-and-compile-caching (read "
    "2026-11-21)",
)
