"""A run with other parallel sizes on the same chips."""

import math
from dataclasses import replace

from advisor.engine.training.parallel.even_splits import pipeline_fault
from advisor.engine.training.run import Run


def relaid(
    run: Run, *, tp: int | None = None, pp: int | None = None, cp: int | None = None, ep: int | None = None
) -> Run:
    """The run on the same chips with these parallel sizes; data parallelism takes the rest, the global batch stays."""
    p = run.parallel
    sized = replace(p, tp=tp or p.tp, pp=pp or p.pp, cp=cp or p.cp, ep=ep or p.ep)
    dp = p.chips // (sized.tp * sized.pp * sized.cp)
    sized = replace(
        sized,
        dp=dp,
        ep=min(sized.ep, dp * sized.cp * sized.tp),
        sequence_parallel=p.sequence_parallel and sized.tp > 1,
        virtual_stages=p.virtual_stages if sized.pp > 1 else 1,
    )
    sequences = run.micro_batch * run.micro_batches * p.dp
    each = max(sequences // dp, 1)
    micro_batch = math.gcd(run.micro_batch, each)
    if pipeline_fault(sized.pp, sized.virtual_stages, each // micro_batch):
        sized = replace(sized, virtual_stages=1)
    return replace(run, parallel=sized, micro_batch=micro_batch, micro_batches=each // micro_batch)
