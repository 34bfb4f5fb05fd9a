"""Closed groups of the form about limits, what to buy where, software, site, finance and weights."""

from typing import get_args

from advisor import workload
from advisor.engine.search import WEIGHTS
from advisor.web.form_fields.fields import (
    CASES,
    COUNTS,
    CURVE,
    LINES,
    LIST,
    NUMBER,
    NUMBERS,
    ON_OFF,
    ONE_OF,
    SOME_OF,
    STACKS,
    TERMS,
    TEXT,
    VALUES,
    WEIGHED,
    WHOLE,
    YAML,
    Field,
    Group,
    _,
    allow_and_deny,
    filled,
    price_path,
)

BUYING = Group(
    _("Buying"),
    (
        Field(
            "constraints.max_capex_usd",
            _("Capex limit, USD"),
            NUMBER,
            _("All purchases over the planning horizon. Empty: no limit; 0: buy nothing"),
        ),
        Field("constraints.max_accelerators", _("Maximum accelerators"), WHOLE, _("Including spares")),
        Field(
            "constraints.acquisition",
            _("Rent, buy or hosted API"),
            SOME_OF,
            _("None checked: all three"),
            choices=(("rent", _("rent")), ("own", _("buy")), ("api", _("hosted API (pay per token)"))),
        ),
        Field(
            "constraints.quality",
            _("Acceptable quality loss from quantization"),
            ONE_OF,
            _("Limits the weight, KV cache and training formats that are considered"),
            choices=(("lossless", _("none (lossless)")), ("near_lossless", _("near-lossless")), ("any", _("any"))),
        ),
    ),
    says=_("Rent, buy or hosted API; no capex limit"),
)
OBJECTIVE = Group(
    _("Objective"),
    (
        Field("tags", _("Tags"), LIST, _("To find the question by: team-a, budget-2027")),
        Field(
            "objective",
            _("Optimize for"),
            ONE_OF,
            _("Sorts the ranking; the best option for each other goal is shown too"),
            choices=(
                ("cost", _("lowest cost")),
                ("latency", _("lowest latency, or fewest days of a training run")),
                ("throughput", _("highest throughput per accelerator")),
                ("energy", _("lowest energy")),
                ("carbon", _("lowest carbon")),
                ("balanced", _("balanced")),
            ),
        ),
    ),
    says=_("Lowest cost"),
)
PLACES = Group(
    _("Hardware and providers"),
    (
        *allow_and_deny("accelerators", _("Only these accelerators"), _("Exclude these accelerators"), "accelerators"),
        *allow_and_deny("vendors", _("Only these vendors"), _("Exclude these vendors"), "vendors"),
        *allow_and_deny("providers", _("Only these providers"), _("Exclude these providers"), "providers"),
        Field(
            "constraints.regions.deny",
            _("Exclude these regions, countries or areas"),
            LIST,
            _("Empty: none excluded"),
            suggestions="offered",
        ),
        Field(
            "constraints.terms",
            _("Rental terms to rank"),
            SOME_OF,
            _("None checked: on-demand and terms of one and three years"),
            choices=tuple((term, _(TERMS.get(term, term.replace("_", " ")))) for term in get_args(workload.Term)),
        ),
        Field(
            "constraints.exclude",
            _("Do not offer"),
            SOME_OF,
            _("None checked: consumer cards, marketplaces, second-hand, quotes, previews, estimates, unconfirmed"),
            choices=(
                ("consumer", _("consumer cards")),
                ("marketplace", _("marketplaces")),
                ("second_hand", _("second-hand hardware or prices")),
                ("quote", _("prices by quote")),
                ("preview", _("previews")),
                ("estimate", _("rental prices known only as an estimate")),
                ("unconfirmed", _("rental prices that could not be confirmed")),
                ("weak_price", _("every weak or old price")),
                ("bookable", _("capacity booked ahead")),
                ("none", _("no restriction: offer all of these")),
            ),
        ),
    ),
    _("Use catalog names, separated by commas."),
    says=_("All accelerators, vendors and providers; on-demand prices"),
)
RUN = Group(
    _("Software and configuration"),
    (
        *allow_and_deny("frameworks", _("Only these frameworks"), _("Exclude these frameworks"), "frameworks"),
        *allow_and_deny("formats", _("Only these weight formats"), _("Exclude these weight formats"), "formats"),
        *allow_and_deny("kv_formats", _("Only these KV cache formats"), _("Exclude these KV cache formats"), "caches"),
        Field(
            "constraints.partitions",
            _("GPU partitions"),
            ONE_OF,
            _("Hardware partitions such as MIG"),
            choices=(
                ("auto", _("show, but don't rank")),
                ("yes", _("rank with whole GPUs")),
                ("required", _("partitions only")),
                ("no", _("ignore")),
            ),
        ),
        Field("adapters.count", _("LoRA adapters"), WHOLE, _("Served with the base model, not merged; empty: none")),
        Field("adapters.rank", _("Adapter rank"), WHOLE, _("Of the largest adapter; empty: 16")),
        Field(
            "adapters.active",
            _("Adapters active at once"),
            WHOLE,
            _("Different adapters kept in GPU memory; empty: all"),
        ),
        Field(
            "adapters.targets",
            _("Adapter target modules"),
            ONE_OF,
            _("Expert layers have no adapters"),
            choices=(("", _("default (all)")), ("all", _("all")), ("attention", _("attention only"))),
        ),
        Field(
            "variants",
            _("Speculative and disaggregated variants"),
            ONE_OF,
            _("Speculative decoding and disaggregated serving"),
            choices=(
                ("adopt", _("rank with all options")),
                ("show", _("show with the option")),
                ("no", _("do not test")),
            ),
        ),
        Field(
            "speculative",
            _("Try speculative decoding"),
            ONE_OF,
            _("A draft proposes tokens; the model verifies them"),
            choices=ON_OFF,
        ),
        Field(
            "disaggregated",
            _("Try disaggregated serving"),
            ONE_OF,
            _("Prefill and decode on separate replicas"),
            choices=ON_OFF,
        ),
        Field(
            "use_measurements",
            _("Use measurements"),
            ONE_OF,
            _("Adjust predictions with benchmark results and your own load tests; no: analytical model only"),
            choices=ON_OFF,
        ),
        Field(
            "probe",
            _("Measure before answering"),
            ONE_OF,
            _("On your organization's own machines that have the chip"),
            choices=(
                ("no", _("no")),
                ("preferred", _("if a machine is available")),
                ("required", _("wait for a machine")),
            ),
        ),
    ),
    says=_("All frameworks and formats; nothing measured first"),
)
SITE = Group(
    _("Site and costs"),
    (
        Field("owned", _("Accelerators you own"), COUNTS, _("For example: 2 x 8 h100-sxm, 4 l40s")),
        Field(
            "inventory",
            _("Accelerators available to buy or rent"),
            COUNTS,
            _("Maximum per type, not counting those you own"),
        ),
        Field(
            "usd_per_accelerator_hour",
            _("Your own prices, USD per accelerator-hour"),
            VALUES,
            _("A quote or an assumption, ranked with the catalog's prices, for example: gaudi3-pcie: 1.5"),
        ),
        Field(
            "price_ratios",
            _("Price factors by rental term"),
            VALUES,
            _("Multiplies every price of the term, for example: spot: 0.9"),
        ),
        Field("constraints.site.max_kw", _("Site power limit, kW"), NUMBER, _("At full load, including PUE")),
        Field(
            "constraints.site.kw_per_rack", _("Power per rack, kW"), NUMBER, _("Servers that draw more are excluded")
        ),
        Field(
            "constraints.site.cooling",
            _("Site cooling"),
            ONE_OF,
            _("For servers you buy"),
            choices=(("any", _("any")), ("air", _("air")), ("liquid", _("liquid"))),
        ),
        Field(
            "constraints.site.region",
            _("Site region"),
            TEXT,
            _("Sets electricity, carbon, PUE and colocation for owned servers, for example grid-fra"),
            suggestions="regions",
        ),
        Field("prices_as_of", _("Prices as of"), TEXT, _("A date such as 2026-10-21; empty: today")),
        Field("tco.power_cap_fraction", _("GPU power cap"), NUMBER, _("30% to 100% of the power limit")),
        Field(
            "tco.grid_kgco2e_per_kwh",
            _("Hourly grid carbon intensity, kgCO2e per kWh"),
            CURVE,
            _("24 numbers, or 168 from Monday 0:00, separated by commas. Empty: the region's annual mean"),
        ),
    ),
    says=_("Nothing owned; today's prices; no power limit"),
)
FORECAST = Group(
    _("Traffic forecast"),
    (
        Field("traffic.growth_fraction_per_year", _("Traffic growth per year"), NUMBER, _("Such as 50%")),
        Field(
            "traffic.ramp_months",
            _("Ramp-up, months"),
            WHOLE,
            _("Traffic grows linearly to its full size over these months; 0: full size from the first day"),
        ),
        Field(
            "traffic.seasonality",
            _("Seasonal factors"),
            NUMBERS,
            _("12 factors on the traffic, one for each month from now, separated by commas; they repeat. Empty: none"),
        ),
        Field(
            "traffic.ends_after_months",
            _("Service ends after, months"),
            WHOLE,
            _("The service is retired then. Empty: it runs beyond the planning horizon"),
        ),
    ),
    _("How traffic changes over the planning horizon. The plan adds and releases capacity month by month."),
    says=_("No growth, no seasons"),
)
FINANCE = Group(
    _("Finance"),
    (
        Field(
            "tco.horizon_months",
            _("Planning horizon, months"),
            WHOLE,
            _("Period for growth, total cost and payment comparisons"),
        ),
        Field("tco.discount_rate", _("Discount rate"), NUMBER, _("Per year, such as 8%")),
        Field(
            "tco.currency",
            _("Currency of documents"),
            TEXT,
            _("Such as EUR; converted at the catalog's dated rate. Choose the currency of pages at their bottom"),
            suggestions="currencies",
        ),
        Field(
            "tco",
            _("Cost assumptions"),
            VALUES,
            _("Override the catalog's, for example: pue: 1.2, maintenance-fraction-per-year: 4%"),
        ),
        Field("tco.rent-change-per-year", _("Rent change per year"), NUMBER, _("Such as -20%")),
        Field(
            "tco.electricity-change-per-year",
            _("Electricity price change per year"),
            NUMBER,
            _("Such as 3%"),
        ),
        Field(
            "tco.hardware-price-change-per-year",
            _("Hardware price change per year"),
            NUMBER,
            _("For the same hardware bought later, such as -10%"),
        ),
        Field(
            "tco.residual-value-year-3",
            _("Residual value after three years"),
            NUMBER,
            _("Share of the purchase price that a sale brings, such as 30%"),
        ),
        Field(
            "tco.depreciation-years", _("Depreciation period, years"), NUMBER, _("Straight line; sets the book value")
        ),
        Field("tco.purchase-lead-months", _("Delivery time of a purchase, months"), NUMBER, _("From order to service")),
        Field(
            "tco.minimum-engineers-own",
            _("Minimum engineers, own hardware"),
            NUMBER,
            _("Full-time equivalents, however small the fleet"),
        ),
        Field(
            "tco.minimum-engineers-rented",
            _("Minimum engineers, rented"),
            NUMBER,
            _("Full-time equivalents, however small the fleet"),
        ),
        Field(
            "tco.commitment-exit-fraction",
            _("Commitments recovered on exit"),
            NUMBER,
            _("Share of the remaining payments that an early exit saves, such as 25%"),
        ),
        Field(
            "tco.income-tax-fraction",
            _("Income tax"),
            NUMBER,
            _("Such as 25%; expenses and depreciation reduce it"),
        ),
        Field(
            "tco.vat-fraction",
            _("VAT that you cannot recover"),
            NUMBER,
            _("Such as 19%; added to every payment except staff"),
        ),
        price_path(
            "rent",
            _("rental prices"),
            _("One point per line: month, ratio to today, low and high end, for example: 12 0.8 0.7 0.9"),
        ),
        price_path(
            "electricity", _("electricity"), _("One point per line: month, ratio to today, low and high end (optional)")
        ),
        price_path(
            "hardware", _("hardware"), _("One point per line: month, ratio to today, low and high end (optional)")
        ),
        price_path(
            "resale",
            _("resale value"),
            _("One point per line: month, ratio to the usual resale value, low and high end (optional)"),
        ),
        Field(
            "tco.scenarios",
            _("Your own scenarios"),
            CASES,
            _("One per line: a name, a colon, ratios to the expected values, for example: launch: load 2, rent 0.9"),
        ),
    ),
    _("Empty fields use the catalog's assumptions."),
    says=_("The catalog's assumptions"),
)
BALANCE = Group(
    _("Weights and team"),
    (
        *(
            Field(
                f"weights.{key}",
                filled(_("Weight of {name}"), name=name),
                NUMBER,
                filled(_("In the balanced score; empty: {usual}"), usual=f"{WEIGHTS[key]:g}"),
            )
            for key, name in WEIGHED.items()
        ),
        *(
            Field(
                f"team.{key}",
                filled(_("Team experience with {name}"), name=name),
                WHOLE,
                _("0 (none) to 5 (expert); empty: unknown"),
            )
            for key, name in STACKS.items()
        ),
    ),
    _("Weights apply to the balanced score only."),
    says=_("Usual weights; experience unknown"),
)
FILED = Group(
    _("Workload file"),
    (
        Field(
            YAML,
            _("YAML"),
            LINES,
            _("Keys here override the form above. A complete workload (one that names a model) replaces the form."),
        ),
    ),
    says=_("None"),
)
