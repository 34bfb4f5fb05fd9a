"""Search: evaluate every candidate deployment, rank the best, and explain each rejection."""

from advisor.engine.search import table
from advisor.engine.search.candidates import (
    ALLOWED_QUALITY,
    CONCURRENCY,
    FROM_SCRATCH,
    MIN_WEIGHT_BITS,
    PRICE_FIELD,
    QUALITY_RANK,
    Catalog,
    Question,
    admissible,
    allowed,
    can_convert,
    efficiency_on,
    holds_replica,
    offers_for,
    published_bits,
    within_quality,
)
from advisor.engine.search.certainty import joint, rank_uncertainty
from advisor.engine.search.certainty.rule import FAR_RATIO, Arranged, Candidate, arrange
from advisor.engine.search.certainty.sensitivity import Bar, Ranges, host_effect, outward, tornado, turning_point
from advisor.engine.search.declared_scores import SCORE_NAMES, WEIGHTS, Score, weights_of
from advisor.engine.search.estimated import Estimated, EstimatedRanking, KnownLanes, estimated_ranking
from advisor.engine.search.limits import (
    DRAWS,
    accepted_share,
    distributions,
    factors_of,
    has_limits,
    interval_ratios,
    latency_excess,
    latency_ranges,
    spot_late_fraction,
    standard_normal,
    tpot_limit_s,
)
from advisor.engine.search.objective import (
    EQUAL_FRACTION,
    MAX_RANKED,
    NEAR_FRACTION,
    SLACK,
    Figures,
    Scale,
    declared_scores_of,
    describe,
    equal_fraction,
    final_score,
    hosted_score,
    missing_figure,
    objective,
    simplicity,
)
from advisor.engine.search.owned_machines import OwnedMachines, owned_offers
from advisor.engine.search.planned import (
    Planned,
    allowed_offers,
    best,
    overheads_of,
    prices_of,
    strategies,
    team_usd_per_hour,
    ways_under,
)
from advisor.engine.search.rejected.unranked import Unranked, at_price, price_share, rate_usd_per_hour
from advisor.engine.search.run import MORE_CHIPS, Chosen, Point, SearchResult, choose, prepare_question, search
from advisor.engine.search.simulated import (
    Design,
    Scored,
    Simulations,
    by_the_hour,
    commits,
    deployed,
    excess,
    instances_of,
    on_offer,
    on_spot,
    repriced,
    resized_usd_per_hour,
    running_cap,
    watts_at,
    with_best_plan,
    with_plan,
)
from advisor.engine.search.table import (
    BY_THE_HOUR,
    UNSERVABLE_REPLICAS,
    Table,
    autoscales,
    best_offers,
    demand_of,
    estimated_excess,
    evaluate,
    host_watts,
    instances_needed,
    licence_of,
    offer_usd_per_hour,
    packing_of,
    serving_estimates,
    started_fraction,
    usable_fraction,
)
from advisor.engine.search.variants.draft_risk import DraftRisk
from advisor.engine.search.variants.evictions import as_cached
from advisor.engine.search.variants.pools_and_drafts import of_pools, simulated_pools
from advisor.engine.search.variants.scale_to_zero import ColdStartTimes, OnDemand, scaled_to_zero
from advisor.engine.search.views import PRICE_BOUND_FACTOR, same
