"""Cost, power and carbon assumptions: defaults from the catalog, which `tco:` in a workload overrides."""

import math
from typing import Any

from advisor.engine.cost import Assumptions

Json = dict[str, Any]
GB = 1e9
# engine field -> key of the assumption in the catalog; `tco:` in a workload may use either name
ASSUMPTION_KEYS = {
    "life_years": "depreciation-years",
    "residual_fraction": "residual-value-fraction",
    "pue": "pue",
    "usd_per_kwh": "electricity-usd-per-kwh",
    "kgco2e_per_kwh": "grid-kgco2e-per-kwh",
    "maintenance_fraction": "maintenance-fraction-per-year",
    "network_fraction": "network-fraction-of-hardware",
    "colocation_usd_per_kw_month": "colocation-usd-per-kw-month",
    "idle_fraction": "idle-power-fraction",
    "host_watts_per_accelerator": "host-watts-per-accelerator",
    "card_host_watts": "card-host-watts",
    "socket_host_watts": "socket-host-watts",
    "small_host_watts": "small-host-watts",
    "small_host_usd": "small-host-usd",
    "card_server_usd": "card-server-usd",
    "card_server_usd_per_card": "card-server-usd-per-card",
    "card_server_watts_per_card": "card-server-watts-per-card",
    "storage_fraction": "storage-fraction-of-hardware",
    "spare_fraction": "spare-fraction",
    "accelerator_fraction": "accelerator-share-of-server-fraction",
    "prefill_power_fraction": "prefill-power-fraction",
    "decode_power_fraction": "decode-power-fraction",
    "waiting_power_fraction": "waiting-power-fraction",
    "kernel_power_fraction": "kernel-power-fraction",
    "memory_power_fraction": "memory-power-fraction",
    "compute_power_fraction": "compute-power-fraction",
    "spot_lost_fraction": "spot-lost-fraction",
    "cloud_addon_fraction": "cloud-addon-fraction",
    "egress_bytes_per_output_token": "egress-bytes-per-output-token",
}
EGRESS, STORAGE = "egress-usd-per-gb", "storage-usd-per-gb-month"
GRID_CURVE = "grid_kgco2e_per_kwh"
HOST = ("host_watts_per_accelerator", "host-watts-per-accelerator")
# follow host_watts_per_accelerator when the workload sets only that
HOST_SHARES = {name: ASSUMPTION_KEYS[name] for name in ("card_host_watts", "socket_host_watts")}
CAP, IDLE = "power_cap_fraction", "idle-power-fraction"
PHASES = ("prefill_power_fraction", "decode_power_fraction")
STAFF = ("operator-usd-per-year", "accelerators-per-operator")
COLD_START = "cold-start-s"
ARRIVAL_CV = "arrival-cv"
ARRIVAL_CVS = (ARRIVAL_CV, f"{ARRIVAL_CV}-code")
RESALE_YEARS = tuple(f"residual-value-year-{year}" for year in range(1, 6))
FINANCE = {  # field of Assumptions -> key
    "superseded_ratio": "residual-superseded-ratio",
    "resale_cost_fraction": "resale-cost-fraction",
    "insurance_fraction": "insurance-fraction-per-year",
    "rented_staff_ratio": "rented-staff-ratio",
    "exit_fraction": "commitment-exit-fraction",
    "vat_fraction": "vat-fraction",
    "spot_wait_s": "spot-wait-s",
}
SERVERS = "server"
DELIVERY = {  # class of what is bought -> months from order to service; the first holds for all if the planner sets it
    SERVERS: "purchase-lead-months",
    "workstation": "purchase-lead-months-workstation",
    "computer": "purchase-lead-months-computer",
}
TEAMS = {"own_team_usd_per_month": "minimum-engineers-own", "rented_team_usd_per_month": "minimum-engineers-rented"}
OVERLAP = "migration-overlap-months"
PATHS = {  # field of Assumptions -> (name in tco.price_paths, key of the yearly change)
    "rent_path": ("rent", "rent-change-per-year"),
    "energy_path": ("electricity", "electricity-change-per-year"),
    "hardware_path": ("hardware", "hardware-price-change-per-year"),
    "resale_path": ("resale", ""),
}
TAXES = ("income-tax-fraction", "vat-fraction")
SUPPLY = "supply-accelerators-per-region"
SERVERLESS = {  # scale to zero: field of ColdStartTimes or rate -> key of the assumption
    "container_s": "serverless-container-start-s",
    "engine_s": "serverless-engine-start-s",
    "idle_timeout_s": "serverless-idle-timeout-s",
    "read_gb_per_s": "serverless-read-gb-per-s",
}
SOFTWARE = "software-usd-per-accelerator-year"
HOST_SPEED = "host-speed-ratio"
SWINGS = (
    "rent-price-swing-ratio",
    "purchase-price-swing-ratio",
    "price-age-swing-ratio",
    "load-swing-ratio",
    "power-low-ratio",
    "power-high-ratio",
)
DISCOUNTS = ("spot-discount-fraction", "reserved-discount-fraction")
COSTS = {
    *ASSUMPTION_KEYS,
    *ASSUMPTION_KEYS.values(),
    *STAFF,
    SOFTWARE,
    EGRESS,
    STORAGE,
    CAP,
    GRID_CURVE,
    COLD_START,
    *ARRIVAL_CVS,
    HOST_SPEED,
    *SERVERLESS.values(),
    *SWINGS,
    *DISCOUNTS,
    *RESALE_YEARS,
    *FINANCE,
    *FINANCE.values(),
    *TEAMS.values(),
    *DELIVERY.values(),
    *TAXES,
    *(key for _, key in PATHS.values() if key),
    OVERLAP,
    SUPPLY,
    "price_paths",
    "scenarios",
    "currency",
}  # keys of `tco:` that affect the answer


def arrival_cv_key(spec: Json, rows: Json) -> str:
    """The assumption about how bursty arrivals are that fits the task."""
    own = f"{ARRIVAL_CV}-{spec.get('task')}"
    return own if own in rows else ARRIVAL_CV


def assumptions_of(spec: Json, rows: Json, place: Json | None = None) -> Assumptions:
    """The engine's assumptions: from `tco:`, else from the region (`place`), else the catalog's default."""
    tco, regional = spec.get("tco", {}), place or {}
    tco = {name: tco[host] for host in HOST if host in tco for name, key in HOST_SHARES.items() if key not in tco} | tco
    values = {
        name: float(tco.get(name, tco.get(key, regional.get(name, rows[key]["value"]))))
        for name, key in ASSUMPTION_KEYS.items()
    }
    if curve := tco.get(GRID_CURVE):
        values["kgco2e_per_kwh"] = sum(curve) / len(curve)
    usd_per_year, accelerators_per_operator, egress, storage = (
        tco.get(key, rows[key]["value"]) for key in (*STAFF, EGRESS, STORAGE)
    )
    staff = usd_per_year / accelerators_per_operator
    figures: Json = values | _finance(tco, rows)
    return Assumptions(
        **figures,
        discount_fraction=float(tco.get("discount_rate", 0.08)),
        staff_usd_per_accelerator_year=float(tco.get("staff_usd_per_accelerator_year", staff)),
        months=float(tco.get("horizon_months", 36)),
        egress_usd_per_byte=egress / GB,
        storage_usd_per_byte_month=storage / GB,
        services_everywhere=EGRESS in tco or STORAGE in tco,
        provider_egress_usd_per_byte=_by_provider(tco, rows, EGRESS),
        provider_storage_usd_per_byte_month=_by_provider(tco, rows, STORAGE),
        power_cap_fraction=float(tco.get(CAP, 1.0)),
        power_given=any(key in tco for name in PHASES for key in (name, ASSUMPTION_KEYS[name])),
    )


def _finance(tco: Json, rows: Json) -> Json:
    """Resale, staff, insurance, exit and price paths."""
    tco = with_one_team(tco)

    def figure(key: str) -> float:
        return float(tco.get(key, rows[key]["value"]))

    months = int(tco.get("horizon_months", 36))
    given = any(key in tco for key in ("residual_fraction", ASSUMPTION_KEYS["residual_fraction"]))
    engineer = figure(STAFF[0]) / 12.0
    return {
        **{name: float(tco.get(name, figure(key))) for name, key in FINANCE.items()},
        **{name: figure(key) * engineer for name, key in TEAMS.items()},
        "resale_by_year": tuple(figure(key) for key in RESALE_YEARS) if not given else (),
        "delivery": deliveries(tco, rows),
        "overlap_months": round(figure(OVERLAP)),
        **{
            name: price_path(tco.get("price_paths") or {}, path, figure(key) if key else 0.0, months)
            for name, (path, key) in PATHS.items()
        },
    }


def deliveries(tco: Json, rows: Json) -> dict[str, tuple[float, float, float]]:
    """(months, low, high) from order to service by class; what the planner sets is certain."""
    found: dict[str, tuple[float, float, float]] = {}
    for name, key in DELIVERY.items():
        given = tco.get(key, tco.get(DELIVERY[SERVERS]))
        row = rows[key]
        if given is not None:
            found[name] = (float(given),) * 3
        else:
            value = float(row["value"])
            found[name] = value, float(row.get("low") or value), float(row.get("high") or value)
    return found


def with_one_team(tco: Json) -> Json:
    """The `tco:` section in which a minimum team that is stated once counts for rented and owned machines."""
    stated = [tco[key] for key in TEAMS.values() if key in tco]
    return dict.fromkeys(TEAMS.values(), stated[0]) | tco if stated else tco


def price_path(paths: Json, name: str, change_per_year: float, months: int, end: str = "ratio") -> tuple[float, ...]:
    """The price of each month over today's; empty: constant. Of resale, at the end of each month 0 .. months.

    `end`: ratio, low or high of the points; a missing end is the ratio.
    """
    points = [(0, 1.0), *((p["month"], float(p.get(end) or p["ratio"])) for p in paths.get(name) or ())]
    count = months + 1 if name == "resale" else months
    if len(points) > 1:
        at, logs = [m for m, _ in points], [math.log(ratio) for _, ratio in points]
        return tuple(math.exp(_interpolated(month, at, logs)) for month in range(count))
    return tuple((1.0 + change_per_year) ** (month / 12.0) for month in range(count)) if change_per_year else ()


def _interpolated(x: float, at: list[int], values: list[float]) -> float:
    after = next((k for k, month in enumerate(at) if month >= x), None)
    if after is None:
        return values[-1]
    if after == 0:
        return values[0]
    share = (x - at[after - 1]) / (at[after] - at[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


def serverless_of(spec: Json, rows: Json) -> dict[str, float]:
    """The assumptions on scale to zero, by field."""
    tco = spec.get("tco", {})
    return {name: float(tco.get(key, rows[key]["value"])) for name, key in SERVERLESS.items()}


def _by_provider(tco: Json, rows: Json, key: str) -> dict[str, float]:
    """USD per byte by provider, from assumptions named KEY-PROVIDER. Without any of these, KEY is the AWS price."""
    own = {name.removeprefix(f"{key}-"): name for name in rows if name.startswith(f"{key}-")} or {"aws": key}
    return {provider: float(tco.get(name, rows[name]["value"])) / GB for provider, name in own.items()}
