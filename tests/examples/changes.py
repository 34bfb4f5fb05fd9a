"""Which first choices differ from the last run, and why."""

from typing import Any

from tests.examples.summary import key

Json = dict[str, Any]
NOTICED = 0.02  # of the cost


def change(name: str, before: Json, after: Json, answer: Json) -> str | None:
    """One line on a first choice that is another or costs more than 2 % more or less; None: neither."""
    old, new = before["first"], after["first"]
    if old is None or new is None:
        return None if old == new else f"{name}: {label(old)} -> {label(new)}"
    if old["key"] != new["key"]:
        return f"{name}: {label(old)} -> {label(new)}. {fate(old, before, answer)}"
    ratio = dollars(new) / dollars(old) if dollars(old) else 1.0
    if abs(ratio - 1) <= NOTICED and old["label"] == new["label"]:
        return None
    return f"{name}: still {new['label']}, {ratio - 1:+.0%} ({label(old)} before)"


def fate(old: Json, before: Json, answer: Json) -> str:
    """What became of the former first choice in the new answer."""
    was = next((o for o in before["options"] if o["key"] == old["key"]), None)
    for each in answer["recommendations"]:
        if key(each) == old["key"]:
            moved = differences(was, each) if was else []
            return f"It is now #{each['rank']}" + (f": {', '.join(moved)}." if moved else ".")
    slug = old["key"].split()[0]
    for each in answer.get("rejected", ()):
        if each.get("accelerator") == slug:
            return f"It is now ruled out: {each['detail']}."
    return "It is no longer among the options."


def differences(was: Json, now: Json) -> list[str]:
    found = []
    probability = now.get("slo_probability", now.get("deadline_probability"))
    if was["usd_per_month"] and abs(now["usd_per_month"] / was["usd_per_month"] - 1) > NOTICED:
        found.append(f"${was['usd_per_month']:,.0f} -> ${now['usd_per_month']:,.0f} a month")
    if probability is not None and was["probability"] is not None and abs(probability - was["probability"]) > 0.02:
        found.append(f"probability {was['probability']:.0%} -> {probability:.0%}")
    if now.get("price_as_of") != was["price_as_of"]:
        found.append(f"price of {was['price_as_of']} -> of {now['price_as_of']}")
    if (now.get("price_weakness") or "") != (was["price_weakness"] or ""):
        found.append(f"price: {now['price_weakness'] or 'no longer weak'}")
    return found


def dollars(first: Json) -> float:
    return float(first["usd_per_run"] if first["usd_per_run"] is not None else first["usd_per_month"] or 0.0)


def label(first: Json | None) -> str:
    return f"{first['label']} (${dollars(first):,.0f})" if first else "nothing qualifies"
