"""What a workload asks that the words about its costs depend on."""

from typing import Any

from advisor.result import Answer, HostedOffer

CHANGING = ("growth_fraction_per_year", "ramp_months", "seasonality", "ends_after_months")  # of the traffic


def spec_of(answer: Answer) -> dict[str, Any]:
    """The workload; empty in answers that hold no workload file."""
    return answer.workload if isinstance(answer.workload, dict) else {}


def allows_apis(answer: Answer) -> bool:
    """Whether the workload lets a hosted API serve it (`constraints.acquisition`), or the answer ranks one."""
    return answer.has_apis or "api" in ((spec_of(answer).get("constraints") or {}).get("acquisition") or [])


def has_changing_traffic(answer: Answer) -> bool:
    """Whether traffic grows, ramps up, follows the seasons or ends within the horizon: an API bill is then a mean."""
    traffic = spec_of(answer).get("traffic") or {}
    return any(traffic.get(name) for name in CHANGING)


def horizon_months(answer: Answer) -> int | None:
    """Planning horizon; None in answers that hold no workload file."""
    months = (spec_of(answer).get("tco") or {}).get("horizon_months")
    return int(months) if months else None


def api_seller(api: HostedOffer) -> str:
    """The provider's name for people."""
    return api.provider_name or api.provider
