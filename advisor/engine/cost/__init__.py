"""Hourly cost, total cost of ownership and site limits."""

from advisor.engine.cost.hourly import (
    AFTER,
    FINANCING,
    HOURS_PER_YEAR,
    JOULES_PER_KWH,
    METERED,
    NOT_PRICED,
    STAFF_PART,
    TEAM,
    Amount,
    Assumptions,
    Draw,
    Licence,
    capital_shares,
    capital_usd,
    capped_speed_fraction,
    hour_usd,
    kernel_fraction,
    licence_usd_per_hour,
    life_months,
    list_rent_parts,
    own_parts,
    present_value,
    priced_usd_per_hour,
    rent_parts,
    service_months,
    service_usd,
    services,
    term_months,
    total_usd_per_hour,
    usd_per_mtok,
    watts_per_chip,
)
from advisor.engine.cost.prices import Prices
from advisor.engine.cost.site import (
    closest_rejection,
    owned_instances,
    racks_of,
    site_rejection,
)
from advisor.engine.cost.tco import (
    Use,
    break_even_share,
    break_even_tokens,
    combined_ratio,
    in_cents,
    waterfall,
)
from advisor.engine.terms import HOURS_PER_MONTH
