"""The visible defaults of cost, power and carbon: catalog rows, or what the workload puts in their place."""

from typing import Any

from advisor.engine.cost import Assumptions

Json = dict[str, Any]
GB = 1e9
# assumption rows -> the engine's names; `tco:` in a workload may override them by either name
ASSUMED = {
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
SHARES = {name: ASSUMED[name] for name in ("card_host_watts", "socket_host_watts")}  # where HOST is given: as it
CAP, IDLE = "power_cap_fraction", "idle-power-fraction"
PHASES = ("prefill_power_fraction", "decode_power_fraction")
DRAWN = tuple(name for name in ASSUMED if name.endswith("_power_fraction") and name not in PHASES)
STAFF = ("operator-usd-per-year", "accelerators-per-operator")
COLD_START = "cold-start-s"
SOFTWARE = "software-usd-per-accelerator-year"
SWINGS = (
    "rent-price-swing-ratio",
    "purchase-price-swing-ratio",
    "load-swing-ratio",
    "power-low-ratio",
    "power-high-ratio",
)
DISCOUNTS = ("spot-discount-fraction", "reserved-discount-fraction")
COSTS = {
    *ASSUMED,
    *ASSUMED.values(),
    *STAFF,
    SOFTWARE,
    EGRESS,
    STORAGE,
    CAP,
    GRID_CURVE,
    COLD_START,
    *SWINGS,
    *DISCOUNTS,
}  # names under `tco:` that the money of an answer reads


def assumptions_of(spec: Json, rows: Json, place: Json | None = None) -> Assumptions:
    """The planner's own figure first, then that of the `place`, then the default."""
    tco, there = spec.get("tco", {}), place or {}
    tco = {name: tco[host] for host in HOST if host in tco for name, key in SHARES.items() if key not in tco} | tco
    rows = dict.fromkeys(SHARES.values(), rows[ASSUMED[HOST[0]]]) | rows  # newer than old snapshots, as are the drawn
    known = {name: key for name, key in ASSUMED.items() if key in rows or name not in DRAWN}
    values = {
        name: float(tco.get(name, tco.get(key, there.get(name, rows[key]["value"])))) for name, key in known.items()
    }
    if curve := tco.get(GRID_CURVE):
        values["kgco2e_per_kwh"] = sum(curve) / len(curve)
    year, each, egress, storage = (tco.get(key, rows[key]["value"]) for key in (*STAFF, EGRESS, STORAGE))
    staff = year / each
    return Assumptions(
        **values,
        discount_fraction=float(tco.get("discount_rate", 0.08)),
        staff_usd_per_accelerator_year=float(tco.get("staff_usd_per_accelerator_year", staff)),
        months=float(tco.get("horizon_months", 36)),
        egress_usd_per_byte=egress / GB,
        storage_usd_per_byte_month=storage / GB,
        services_everywhere=EGRESS in tco or STORAGE in tco,
        provider_egress_usd_per_byte=_by_provider(tco, rows, EGRESS),
        provider_storage_usd_per_byte_month=_by_provider(tco, rows, STORAGE),
        power_cap_fraction=float(tco.get(CAP, 1.0)),
        power_given=any(key in tco for name in PHASES for key in (name, ASSUMED[name])),
    )


def _by_provider(tco: Json, rows: Json, key: str) -> dict[str, float]:
    """USD per byte of each provider with a row of its own, KEY-PROVIDER; without any, KEY is that of AWS."""
    own = {name.removeprefix(f"{key}-"): name for name in rows if name.startswith(f"{key}-")} or {"aws": key}
    return {provider: float(tco.get(name, rows[name]["value"])) / GB for provider, name in own.items()}
