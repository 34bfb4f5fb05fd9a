"""Why the first deployment has separate pools for prefill and decode, or has none."""

from advisor.engine.search import SearchResult
from advisor.inputs import rounded
from advisor.result import SeparatePools
from advisor.templatetags.finance import chance


def separate_pools(outcome: SearchResult) -> SeparatePools | None:
    """None: nothing was tried in place of the first deployment, or that fits on one host."""
    tried = outcome.pools_tried
    if tried is None or not outcome.shown:
        return None
    first = outcome.shown[0]
    chosen, together = first.pools is not None, tried.together_chips
    if together <= first.lane.choice.accelerator.chips_per_host and not chosen:
        return None
    return SeparatePools(
        chosen=chosen,
        together_accelerator_count=together,
        accelerator_count=tried.chips or None,
        slo_probability=None if tried.probability is None else rounded(tried.probability, 4),
        said=sentence(chosen, together, tried.chips, tried.probability),
    )


def sentence(chosen: bool, together: int, chips: int, probability: float | None) -> str:
    """Why, in accelerators without spares."""
    if chosen:
        return f"Prefill and decode run in separate pools, because together they need {together:,} accelerators."
    if not chips:
        return "Prefill and decode stay together: separate pools need no fewer accelerators."
    sure = f"only with {chance(probability)} probability" if probability is not None else "only as estimated"
    return (
        f"Prefill and decode stay together: separate pools of {chips:,} accelerators meet the limits {sure}, because "
        "estimates of pools have larger errors."
    )
