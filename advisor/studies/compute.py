"""One piece of a study: from its points and the rows of the catalog to rows of the results."""

import functools
import pickle
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.utils.crypto import constant_time_compare, salted_hmac

from advisor import answer, inputs
from advisor.answer import quick
from advisor.engine import ENGINE_VERSION
from advisor.leases import LostLease
from advisor.models import Advice, StudyPiece, StudyRows
from advisor.result import FIGURES, Answer, Estimate, Intervals, QuickRanking, interval
from advisor.studies.plan import CLOSED_FORM, SIZES
from advisor.workload import TrainingRun, WorkloadError, parse_estimate
from catalog.models import CatalogLoad, Organisation

log = structlog.get_logger("assay.studies")
Json = dict[str, Any]
SIGNED_BYTES = 32
MOST_REASONS = 3
BY_PATH = {figure.path: figure for figure in FIGURES}
RANGED = ("usd_per_month", "usd_per_mtok_output", "usd_per_mtok_input", "usd_per_run", "ttft_ms.p95", "tpot_ms.p95")
TEXTS = ("accelerator", "accelerator_count", "provider", "instance", "region", "term", "framework", "framework_version",
         "weights_dtype", "replicas", "slo_probability", "first_probability", "basis", "price_as_of")  # fmt: skip


class CatalogChanged(WorkloadError):
    """The catalog is not the one that the study began with."""

    def __init__(self) -> None:
        reason = "the catalog changed while the study ran; create the study again to use the new one"
        super().__init__([{"field": "study", "message": reason}])


def catalog_version() -> str:
    newest = CatalogLoad.objects.order_by("-pk").first()
    return newest.version if newest else ""


def read_rows(piece: StudyPiece) -> list[tuple[str, Json]]:
    """The catalog rows that a piece of phase 0 reads, by key."""
    asked = [(point["key"], point["asked"]) for point in piece.points if point["key"]]
    return [(key, inputs.shared_rows(question, piece.study.organisation)) for key, question in asked]


def results(piece: StudyPiece, check: Callable[[], None]) -> list[Json]:
    """A row for each point. `check` is called between stages and may end the work with an exception."""
    is_estimates = piece.study.kind == piece.study.Kind.ESTIMATES
    compute = partial(estimated, piece.study.organisation) if is_estimates else partial(answered, piece)
    if is_estimates and catalog_version() != piece.study.catalog_version:
        raise CatalogChanged
    rows = []
    for point in alike_together(piece.points):
        check()
        began_s = time.process_time()
        row = compute(point, check)
        row |= {"prices_as_of": day_of(piece, point), "catalog_version": piece.study.catalog_version}
        row |= {"engine_version": ENGINE_VERSION, "cpu_s": round(time.process_time() - began_s, 3)}
        rows.append({"point": point["index"], "set": point["set"], "state": "done"} | row)
    return sorted(rows, key=lambda row: row["point"])


def alike_together(points: list[Json]) -> list[Json]:
    """Rankings with the same lanes after one another, which then are built once."""
    closed = bool(points) and "method" in points[0]
    return sorted(points, key=lambda point: quick.lanes_key(point["asked"])) if closed else points


def day_of(piece: StudyPiece, point: Json) -> str:
    """The day whose prices apply."""
    return str(point["asked"].get("prices_as_of") or piece.study.prices_as_of)


# --- answers ----------------------------------------------------------------------------------------------------


def answered(piece: StudyPiece, point: Json, check: Callable[[], None]) -> Json:
    """The first choice for a workload, or why there is none."""
    spec = point["asked"]
    market, model = (rows_of(piece.study_id, point[name]) for name in ("market", "model"))
    snapshot = inputs.joined(market, model, spec.get("price_ratios", {}))
    if point.get("method") == CLOSED_FORM:
        return ranked_row(spec, quick.quick_row(spec, snapshot, (piece.study_id, point["market"])))
    return row_of(spec, answer.recommend(spec, snapshot, lambda stage, done: check(), first_screen=True))


@functools.lru_cache(maxsize=4)
def rows_of(study: UUID, key: str) -> Json:
    """Rows of the catalog as a study read them: they never change. Nobody may change what is returned."""
    found: Json = StudyRows.objects.values_list("rows", flat=True).get(study_id=study, key=key)
    return found


def ranked_row(spec: Json, found: QuickRanking) -> Json:
    """The first option of a ranking by formulas, or what is closest to one."""
    within = [each for each in found.options if each.meets_slo is not False]
    nearest = [each for each in found.missed if each.over_limit_fraction is not None]
    row: Json = {
        "workload": spec["name"],
        "model": spec["model"] if isinstance(spec["model"], str) else "own-model",
        "feasible": bool(within),
        "decision": "Ranked by closed formulas, not simulated.",
        "action": None,
        "why_not": None,
    }
    if not within:
        said = [f"{each.label} is {each.over_limit_fraction:.0%} over a latency limit" for each in nearest[:1]]
        said += [f"{each.accelerator}: {each.detail}" for each in found.rejected if each.reason != "excluded"]
        return row | {"why_not": "; ".join(said[:MOST_REASONS]) or "nothing in the catalog is allowed"}
    first = within[0]
    row |= {"option": first.label} | {name: getattr(first, name, None) for name in TEXTS}
    return row | {name: getattr(first, name) for name in ("usd_per_month", "ttft_ms_p95", "tpot_ms_p95")}


def row_of(spec: Json, found: Answer) -> Json:
    first = found.recommendations[0] if found.recommendations else None
    decision = found.decision
    row: Json = {
        "workload": spec["name"],
        "model": spec["model"] if isinstance(spec["model"], str) else "own-model",
        "feasible": found.is_feasible,
        "decision": found.verdict,
        "action": decision.action if decision else None,
        "why_not": None if first else why_not(found),
    }
    if first is None:
        return row
    row |= {"option": first.label} | {name: getattr(first, name, None) for name in TEXTS}
    row |= {f"{name}_ms_p95": value(first, f"{name}_ms.p95") for name in ("e2e", "latency")}
    for path in RANGED:
        low, high = interval(first, BY_PATH[path])
        name = path.replace(".", "_")
        row |= {name: value(first, path), f"{name}_low": low, f"{name}_high": high}
    return row


def value(option: Any, path: str) -> Any:
    for name in path.split("."):
        option = getattr(option, name, None)
    return option


def why_not(found: Answer) -> str:
    """The verdict, and what stops the first accelerators."""
    reasons = [f"{each.accelerator}: {each.detail}" for each in found.rejected if each.reason != "excluded"]
    return " ".join([found.verdict, "; ".join(reasons[:MOST_REASONS])]).strip()


# --- estimates --------------------------------------------------------------------------------------------------


def estimated(organisation: Organisation, point: Json, check: Callable[[], None]) -> Json:
    """One replica of a model on a kind of accelerator; what cannot run there is a row with its reason."""
    asked = point["asked"]
    fixed = {"isl": asked["isl"], "osl": asked["osl"], "concurrency": asked["concurrency"]}
    row = {**{name: asked[name] for name in ("isl", "osl")}, "fits": False}
    if asked["concurrency"] != "max":
        row["concurrency"] = asked["concurrency"]
    for tp in SIZES if asked["tp"] == "auto" else (asked["tp"],):
        check()
        try:
            deployment = parse_estimate({**point["set"], **fixed, "tp": tp})
            assert not isinstance(deployment, TrainingRun)
            found = answer.single_estimate.answer(deployment, organisation)
        except WorkloadError as error:
            return {**row, "why_not": row.get("why_not") or str(error)}
        if found.fits:
            return row | estimate_row(found)
        changes = found.smallest_change
        row["why_not"] = f"does not fit on {tp}" + (f"; {changes}" if changes else "")
        row["accelerator_count"] = tp
    return row


def estimate_row(found: Estimate) -> Json:
    ranges = found.interval or Intervals()
    ends = {name: getattr(ranges, path) or (None, None) for name, path in (
        ("output_tokens_per_s", "output_tokens_per_s"), ("tpot_ms_mean", "tpot_ms"))}  # fmt: skip
    names = ("accelerator_count", "framework", "framework_version", "kv_dtype", "output_tokens_per_s",
             "output_tokens_per_s_per_accelerator", "usd_per_hour", "usd_per_mtok_output", "basis")  # fmt: skip
    return {
        "fits": True,
        "why_not": None,
        **{name: getattr(found, name) for name in names},
        **{f"{name}_{end}": each[i] for name, each in ends.items() for i, end in ((0, "low"), (-1, "high"))},
        "concurrency": found.concurrency,
        "ttft_ms_mean": value(found, "ttft_ms.mean"),
        "ttft_ms_p95": value(found, "ttft_ms.p95"),
        "tpot_ms_mean": value(found, "tpot_ms.mean"),
        "tpot_ms_p95": value(found, "tpot_ms.p95"),
        "weights_gib": found.memory.weights_gib,
        "kv_gib": found.memory.kv_gib,
        "free_gib": found.memory.free_gib,
        "price_as_of": found.price_as_of,
    }


# --- parts of portfolios ----------------------------------------------------------------------------------------


def portfolio_part(piece: StudyPiece, check: Callable[[], None]) -> bytes:
    """One workload of a portfolio for the worker that answers it.

    These are engine values, which only Python can store: a pickle with a keyed hash, which is read only if a worker
    with the same SECRET_KEY and engine wrote it. Raises LostLease if the portfolio is gone.
    """
    advice = Advice.objects.select_related("workload").filter(study=piece.study_id).first()
    if advice is None or advice.snapshot is None:
        raise LostLease
    part, snapshot = advice.workload.spec["workloads"][piece.index], inputs.Snapshot.read(advice.snapshot)
    return packed(answer.part_of_portfolio(part, snapshot.parts[piece.index], lambda stage, done: check()))


def packed(part: Any) -> bytes:
    """A part with its keyed hash in front."""
    content = zlib.compress(pickle.dumps(part, protocol=5), 1)
    return signature(content) + content


def unpacked(stored: Any) -> Any:
    """The part; None if there is none, or it was not written by a worker of this service and version."""
    content = bytes(stored or b"")
    if not content:
        return None
    if not constant_time_compare(content[:SIGNED_BYTES], signature(content[SIGNED_BYTES:])):
        log.warning("a part of a portfolio cannot be read: it was written with another SECRET_KEY or version")
        return None
    return pickle.loads(zlib.decompress(content[SIGNED_BYTES:]))  # noqa: S301 (the keyed hash was checked)


def signature(content: bytes) -> bytes:
    return salted_hmac(f"assay part {ENGINE_VERSION}", content, algorithm="sha256").digest()
