"""What a document is about: one deployment, a portfolio, or an answer of an early version that kept only totals."""

from django.http import Http404

from advisor.report.asked import allows_apis
from advisor.result import Answer, ApiOption, HostedOffer, Money, Option, PortfolioMoney, TrainingOption

TOTALS_ONLY = (
    "An earlier version of Assay computed this answer and kept only its totals. Run the workload again to get the "
    "bill by part, other payment options and the cash flow by month."
)
NO_ANSWER = "Nothing was recommended, so there are no documents. The answer says why each accelerator was rejected."
NO_SHARED_ANSWER = (
    "One workload of this portfolio has no feasible option, so there are no documents. Relax its limits, or ask for "
    "each workload by itself."
)


def shared_money(answer: Answer) -> PortfolioMoney | None:
    """Costs of a portfolio; none of a single workload."""
    return answer.portfolio.money if answer.portfolio else None


def is_early_portfolio(answer: Answer) -> bool:
    """Whether a version computed it that kept no costs of portfolios; where a workload has no answer, they are None."""
    return answer.portfolio is not None and answer.portfolio.has_no_costs_stored


def has_papers(answer: Answer) -> bool:
    """Whether something was recommended that a document can be about."""
    return bool(answer.machines or shared_money(answer) or is_early_portfolio(answer))


def has_document(answer: Answer, name: str) -> bool:
    """Whether there is something for the document of this name.

    Hosted APIs have all of them; in answers of earlier versions, a memo alone.
    """
    api = first_api(answer)
    of_api = api is not None and (name.startswith("memo") or api.payments is not None)
    return name == "assumptions.csv" or has_papers(answer) or of_api


def first_api(answer: Answer) -> ApiOption | None:
    """The first option if it is a hosted API."""
    first = answer.recommendations[0] if answer.recommendations else None
    return first if isinstance(first, ApiOption) else None


def first_rank(answer: Answer) -> int:
    """The rank of the first deployment, for documents that need machines."""
    return next((r.rank for r in answer.machines if r.rank), 1)


def default_rank(answer: Answer, name: str) -> int:
    """The rank of the option that a document is about unless another is named.

    All documents are about the first option, which may be a hosted API. Of an API in an answer of an earlier version
    there is a memo alone, and the others are about the first deployment, as are files for other systems.
    """
    api = first_api(answer)
    of_api = name.startswith("memo") or (api is not None and api.payments is not None and not name.endswith(".yaml"))
    if answer.recommendations and of_api:
        return answer.recommendations[0].rank or 1
    return first_rank(answer)


def api_of(answer: Answer, rank: int) -> ApiOption | None:
    """The hosted API of this rank with its bill by month; None: the rank is a deployment's, or no bill was kept."""
    option = answer.option(rank) if not answer.portfolio else None
    return option if isinstance(option, ApiOption) and option.payments is not None else None


def chosen(answer: Answer, rank: int) -> Option | TrainingOption:
    """The deployment of this rank; its `money` is None in answers of early versions."""
    option = answer.option(rank)
    if option is None:
        raise Http404("This answer has no option of that rank.")
    if isinstance(option, ApiOption):
        raise Http404("That option is a hosted API: nothing is bought or installed. Its page has the bill.")
    return option


def money_of(answer: Answer, rank: int) -> Money | PortfolioMoney | None:
    """Costs of the portfolio or of the deployment; None: an early version kept none."""
    if is_early_portfolio(answer):
        return None
    if api := api_of(answer, rank):
        return api.payments
    return shared_money(answer) or chosen(answer, rank).money


def prices_used(m: Money | PortfolioMoney) -> str:
    """The dates of the prices behind the costs: one day, or the oldest and the newest."""
    if isinstance(m, PortfolioMoney):
        days = sorted({item.price_as_of for item in m.items})
    else:
        days = sorted({step.price_as_of for step in m.plan.steps}) if m.plan else []
    days = [day for day in days if day] or [m.prices_as_of]
    return " to ".join(dict.fromkeys((days[0], days[-1])))


def oldest_price(r: Option | TrainingOption) -> str:
    """The date of the oldest price that the costs of an option rest on."""
    return prices_used(r.money).split(" to ")[0] if r.money else r.price_as_of


# --- hosted APIs ------------------------------------------------------------------------------------------------


def cheapest_api(answer: Answer) -> HostedOffer | None:
    """The hosted API with the lowest bill; None: none is priced."""
    priced = [h for h in answer.hosted if h.usd_per_month]
    return min(priced, key=lambda h: h.usd_per_month) if priced else None


def better_api(answer: Answer, option: Option | TrainingOption) -> HostedOffer | None:
    """The cheapest hosted API that the constraints allow and that costs less than the deployment; None: there is none.

    An API that was rejected or misses a latency limit is not better.
    """
    if not allows_apis(answer):
        return None
    ranked = [r for r in answer.recommendations if isinstance(r, ApiOption)]
    usable = [h for h in (*answer.hosted, *ranked) if h.usd_per_month and h.rejection is None]
    least = min((h for h in usable if h.slo_state != "missed"), key=lambda h: h.usd_per_month, default=None)
    return least if least is not None and least.usd_per_month < option.usd_per_month else None
