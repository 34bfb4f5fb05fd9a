"""Hosted APIs of a model, paid per token: prices and speeds as published, and those that are ranked as options."""

from typing import Annotated, Any, Literal

from advisor.result.base import (
    Count,
    Fraction,
    Milliseconds,
    Percentiles,
    Ratio,
    Section,
    Tokens,
    TokensPerSecond,
    Unit,
    Usd,
    UsdPerHour,
    UsdPerMonth,
    UsdPerMtok,
)
from advisor.result.options.option import Intervals
from advisor.result.options.why_not import Rejection
from advisor.result.portfolio import PortfolioMoney

SloState = Literal["no limit", "reached", "disputed", "not verified", "missed"]


class Speed(Section):
    """A published speed of a hosted API, for one request."""

    output_tokens_per_s: TokensPerSecond | None
    """Output tokens per second of one request; null: the source has none."""
    ttft_ms: Milliseconds | None
    """Median time to first token; null: the source has none."""
    kind: str
    """measured (by somebody else) or stated (by the provider)."""
    as_of: str
    """Date of the figure."""
    source: str
    """Where it was read."""


class TokenCharge(Section):
    """One line of an API bill."""

    name: str
    """input, cached input or output."""
    tokens_per_month: Tokens
    """Tokens of this workload in a month."""
    usd_per_mtok: UsdPerMtok
    """Price of a million of them."""
    usd_per_month: UsdPerMonth
    """What they cost in a month."""


class HostedOffer(Section):
    """A hosted API of the model, paid per token; prices and speeds as published."""

    provider: str
    """Who hosts it."""
    name: str
    """The provider's name of the model."""
    accelerator: str | None
    """Accelerator that the provider names; null: not published."""
    as_of: str
    """Date of the price."""
    source: str
    """Where the price was read."""
    acquisition: str
    """api."""
    basis: str
    """published, not estimated."""
    usd_per_mtok_input: UsdPerMtok
    """Price of a million prompt tokens."""
    usd_per_mtok_cached_input: UsdPerMtok | None
    """Price of a million cached prompt tokens; null: none published, counted as other tokens."""
    usd_per_mtok_output: UsdPerMtok
    """Price of a million output tokens."""
    usd_per_mtok_blended: UsdPerMtok | None
    """Price of a million tokens at the workload's mix."""
    usd_per_month: UsdPerMonth
    """Bill of the workload."""
    discount_fraction: Fraction
    """Discount in these prices."""
    max_input_tokens: Annotated[int, Unit("tokens")] | None
    """Context limit of the endpoint, prompt and output together; null: not published."""
    published_output_tokens_per_s: TokensPerSecond | None
    """Newest published speed for a user, measured before stated; null: not published."""
    speed_source: str
    """Where the speed was read."""
    within_budget: bool
    """Whether it is within max_usd_per_month."""
    rank_by_cost: Count | None
    """Rank by cost among options and APIs; null: APIs were not asked for, or cost does not decide."""
    break_even_tokens_per_month: Tokens | None
    """Tokens per month above which the best rented option costs less."""
    break_even_with: str | None
    """That option."""
    break_even_within_capacity: bool | None
    """Whether it can serve that many."""
    warnings: list[str]
    """What the published figures miss or leave open."""
    provider_name: str = ""
    """Display name of the provider."""
    quantization: str = ""
    """Weight format as the provider names it; empty: not published."""
    locations: list[str] = []
    """ISO codes of the countries that it serves from; empty: unknown."""
    base_url: str = ""
    """OpenAI-compatible endpoint; empty: see the provider's documentation."""
    speeds: list[Speed] = []
    """Published speeds, the newest first."""
    bill: list[TokenCharge] = []
    """The month's bill by kind of token."""
    price_outlier: str = ""
    """How far the price is from that of other providers of the model; empty: in line with them."""
    price_age_days: Count | None = None
    """Days from the date of the price to the question; absent in answers of earlier versions."""
    price_ratio: Ratio | None = None
    """Price of a mean request divided by the median of other providers' offers; null: there are none."""
    price_others: Count | None = None
    """Number of offers of other providers."""
    slo_state: SloState = "not verified"
    """reached: every published speed is within the limits on speed, and no other latency is limited; disputed: only
    some are; not verified: figures are missing for a limit; missed: no published figure is within it."""
    rank: Count | None = None
    """Its rank among all options; null: not ranked."""
    rejection: Rejection | None = None
    """Why it is not ranked, with the smallest change; null: ranked, or APIs were not asked for."""

    @property
    def endpoint(self) -> str:
        """The seller's name for people, and its name of the model."""
        return f"{self.provider_name or self.provider} {self.name}"


class ApiOption(HostedOffer):
    """A hosted API as a ranked option. Fields of a deployment that an API does not have are null."""

    label: str
    """The option in one line."""
    instance: str
    """The provider's name of the model."""
    region: str
    """Countries that it serves from; unknown: not published."""
    term: str
    """per_token."""
    price_as_of: str
    """Date of the price."""
    price_source: str
    """Where the price was read."""
    ttft_ms: Percentiles
    """Published median of the time to first token; other percentiles are not published."""
    tpot_ms: Percentiles
    """Time per output token at the published speed; other percentiles are not published."""
    usd_per_hour: UsdPerHour
    """Bill, averaged over all hours."""
    tco_usd: Usd
    """Present value of the bill over the horizon."""
    requests_per_s: Annotated[float, Unit("requests/s")]
    """Mean load."""
    output_tokens_per_s: TokensPerSecond | None
    """Generated tokens at the mean load, all users together."""
    meets_slo: bool | None
    """true: no latency is limited; null: not known, because nobody publishes p95 latencies."""
    interval: Intervals
    """Empty: the price is published and the latency is not estimated."""
    slo_probability: Fraction | None = None
    """Probability of meeting the SLO; always null: not known."""
    how_to_call: str = ""
    """The request to send."""
    reasons: list[str]
    """Why it is ranked here."""
    payments: PortfolioMoney | None = None
    """The bill by month and by kind of token; absent in answers of earlier versions."""
    accelerator_name: str = ""
    """Accelerator that the provider names; empty: not published."""
    accelerator_count: None = None
    """Always null."""
    framework: None = None
    """Always null."""
    framework_version: None = None
    """Always null."""
    weights_dtype: None = None
    """Always null; see quantization."""
    kv_dtype: None = None
    """Always null."""
    tp: None = None
    """Always null."""
    pp: None = None
    """Always null."""
    ep: None = None
    """Always null."""
    dp: None = None
    """Always null."""
    replicas: None = None
    """Always null."""
    concurrency: None = None
    """Always null."""
    max_batched_tokens: None = None
    """Always null."""
    speculative: None = None
    """Always null."""
    disaggregated: None = None
    """Always null."""
    memory: None = None
    """Always null."""
    utilisation: None = None
    """Always null."""
    watts: None = None
    """Always null: the provider does not publish it."""
    joules_per_output_token: None = None
    """Always null: the provider does not publish it."""
    kgco2e_per_mtok: None = None
    """Always null: the provider does not publish it."""
    bound: None = None
    """Always null."""
    launch: None = None
    """Always null: nothing is started; see how_to_call."""
    money: None = None
    """Always null; see bill."""

    @property
    def place(self) -> str:
        """The seller and the countries that it serves from."""
        return f"{self.provider} {self.region}".strip()

    @property
    def is_embedding(self) -> bool:
        """Whether it returns vectors and generates no tokens."""
        return False

    def figure(self, path: str) -> Any:
        """The value at a dotted path; None where an API has no such figure."""
        return super().figure(path) if self.has(path.split(".")[0]) else None
