"""The smallest change to a workload with which an option qualifies, in words instead of keys of the file."""

import re

from django import template

from advisor.templatetags.units import given, plain

register = template.Library()
LIMITS = {  # key in the workload file -> the limit with its value
    "ttft_ms_p95": "a TTFT p95 limit of %s ms",
    "tpot_ms_p95": "a TPOT p95 limit of %s ms",
    "e2e_ms_p95": "an end-to-end p95 limit of %s ms",
    "tokens_per_s_per_user": "a minimum of %s tokens/s per user",
    "max_usd_per_month": "a budget of $%s per month",
    "max_capex_usd": "a purchase budget of $%s",
    "max_accelerators": "%s accelerators",
    "site.max_kw": "a site power of %s kW",
    "site.kw_per_rack": "%s kW per rack",
    "confidence": "a confidence of %s",
    "batch.deadline_hours": "a deadline of %s hours",
    "training.deadline_days": "a deadline of %s days",
    "finetune.deadline_days": "a deadline of %s days",
}
DROPPED = {  # the same without a value
    "ttft_ms_p95": "TTFT p95",
    "tpot_ms_p95": "TPOT p95",
    "e2e_ms_p95": "end-to-end p95",
    "tokens_per_s_per_user": "tokens/s per user",
    "max_usd_per_month": "the budget",
    "max_kw": "the site's power",
    "confidence": "the confidence",
}
LISTS = {
    "accelerators.allow": "these accelerators allowed",
    "accelerators.deny": "these accelerators excluded",
    "frameworks.allow": "these frameworks allowed",
    "frameworks.deny": "these frameworks excluded",
    "formats.allow": "these weight formats allowed",
    "formats.deny": "these weight formats excluded",
    "kv_formats.allow": "these KV cache formats allowed",
    "kv_formats.deny": "these KV cache formats excluded",
    "providers.allow": "these providers allowed",
    "providers.deny": "these providers excluded",
    "vendors.allow": "these vendors allowed",
    "vendors.deny": "these vendors excluded",
    "regions.allow": "these regions allowed",
    "regions.deny": "these regions excluded",
    "acquisition": "these ways to pay allowed",
    "terms": "these rental terms allowed",
    "exclude": "only these offers excluded",
}
KEY = r"(?<![\w.])(?:slo\.|constraints\.)?([a-z0-9_]+(?:\.[a-z_]+)?)"
RAISED = re.compile(rf"{KEY} >= ([0-9.]+)")
LIMIT = re.compile(rf"{KEY} [<>]= ([0-9.]*[0-9])")
LIST = re.compile(rf"{KEY}: \[([^\]]*)\]")
NO_LIMIT = re.compile(r"\bno (\w+)|(?:slo\.|constraints\.)(\w+): null")
PRICE = re.compile(r"usd_per_accelerator_hour\.(\S+) <= ([0-9.e-]*[0-9])")
QUALITY = re.compile(r"(?:constraints\.)?quality: any")


@register.filter
def limits_to_raise(change: object) -> str:
    """The change for people: "qualifies with a TTFT p95 limit of 1,441 ms and a budget of $3,055 per month"."""
    text = str(change)
    limits = list(RAISED.finditer(text))
    if text == "passes with " + " and ".join(found[0] for found in limits):
        return "qualifies with {}".format(" and ".join(map(limit, limits)))
    return in_words(re.sub("^passes with", "qualifies with", plain(text)))


def limit(found: re.Match[str]) -> str:
    """One limit with its value; a key without a name stays as the workload file has it."""
    return LIMITS[found[1]] % given(found[2]) if found[1] in LIMITS else f"{found[1]} {given(found[2])}"


def in_words(text: str) -> str:
    """Other changes, in English like the rest of a stored answer; keys without a name stay."""
    text = PRICE.sub(r"a price of at most $\2 an hour for \1", text).replace(
        "priced with a price", "ranked with a price"
    )
    text = LIMIT.sub(lambda m: LIMITS[m[1]] % given(m[2]) if m[1] in LIMITS else m[0], text)
    text = LIST.sub(lambda m: f"{LISTS[m[1]]}: {m[2].replace('_', ' ') or 'none'}" if m[1] in LISTS else m[0], text)
    text = QUALITY.sub("weight formats of any quality", text)
    return NO_LIMIT.sub(lambda m: f"no limit on {name}" if (name := DROPPED.get(m[1] or m[2])) else m[0], text)
