"""Figures over many scored rows: by group, overall, and the JSON of `fidelity`."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.fidelity.rows import Row
from advisor.fidelity.scores import statistics
from advisor.fidelity.scores.scoring import DERIVED, Scored
from advisor.fidelity.scores.statistics import Point

MISFIT = "predicted not to fit, but it ran"


def point_of(s: Scored) -> Point:
    """A scored row as a point for the statistics."""
    return Point(
        ape=s.ape,
        ratio=s.ratio,
        inside=s.in_interval,
        group=(s.row.accelerator_slug, s.row.model_id, s.row.source_key),
        chip=s.row.accelerator_slug,
        pair=pair_case(s),
        measured=s.row.value,
        predicted=s.prediction.value if s.prediction else None,
    )


def summary(scored: Sequence[Scored]) -> dict[str, Any]:
    """n, median and p90 error, bias, coverage of the stated intervals, share of chip pairs ranked correctly."""
    return statistics.summary([point_of(s) for s in scored])


def pair_case(s: Scored) -> tuple[Any, ...] | None:
    """The key that rows of two chips must share to be compared; None if the row is not comparable.

    It has the source, metric, model, framework, format, chip count, users and lengths (two digits, because data sets
    vary between runs). In open loops, the rate is tuned for each chip, so only throughput is comparable.
    """
    if s.case is None or s.prediction is None or s.row.metric == "fits_in_memory":
        return None
    c = s.case
    open_loop = c.client.kind == "poisson"
    if open_loop and "tokens_per_s" not in s.row.metric:
        return None
    lengths = (f"{c.isl:.2g}", f"{c.osl:.2g}")
    limits = (c.ttft_limit_s, c.tpot_limit_s)
    key = (s.row.source_key, s.row.metric, c.model_id, c.framework, c.weights_dtype, c.chips, c.mode, c.phase)
    return (*key, *lengths, *limits, None if open_loop else c.concurrency)


def ordered_pairs(scored: Sequence[Scored]) -> tuple[int, int]:
    """(pairs ranked correctly, pairs) of chips measured on the same case that differ by more than 10 %."""
    return statistics.ordered_pairs([point_of(s) for s in scored])


def grouped(scored: Sequence[Scored], by: Sequence[str]) -> list[dict[str, Any]]:
    """One summary for each combination of the columns `by`, largest group first."""
    groups: defaultdict[tuple[str, ...], list[Scored]] = defaultdict(list)
    for s in scored:
        groups[tuple(label(s, name) for name in by)].append(s)
    figures = [
        dict(zip(by, key, strict=True)) | summary(members) | {"skipped": sum(bool(s.skipped) for s in members)}
        for key, members in groups.items()
    ]
    return sorted(figures, key=lambda group: (-group["n"], *(group[name] for name in by)))


def label(s: Scored, name: str) -> str:
    """A row's value in a column of the file or a derived column."""
    return s.labels[name] if name in s.labels else str(getattr(s.row, name))


COLUMNS = (*Row.__slots__, *DERIVED)


def report(scored: Sequence[Scored], by: Sequence[str], disputed: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of `fidelity`: rows, groups, and overall figures with and without disputed rows."""
    undisputed = [s for s in scored if s.row.id not in disputed]
    skipped = Counter(s.skipped for s in scored if s.skipped)
    misfits = sum(s.prediction is not None and s.prediction.value is None for s in scored)
    known = [s for s in undisputed if s.labels["client_known"] == "true"]
    return {
        "rows": [_row_json(s, disputed.get(s.row.id, "")) for s in scored],
        "groups": grouped(scored, by) if by else [],
        "overall": summary(scored) | {"skipped": sum(skipped.values()), "predicted_not_to_fit": misfits},
        "undisputed": summary(undisputed) | {"disputed": len(scored) - len(undisputed)},
        "known_client": summary(known),
        "skipped_reasons": dict(skipped.most_common()),
    }


def _row_json(s: Scored, disputed: str) -> dict[str, Any]:
    p = s.prediction
    skipped = s.skipped or None
    return {
        "id": s.row.id,
        "metric": s.row.metric,
        "measured": None if math.isnan(s.row.value) else s.row.value,
        "predicted": p.value if p else None,
        "ape": s.ape,
        "low": p.low if p else None,
        "high": p.high if p else None,
        "in_interval": s.in_interval,
        "skipped": skipped,
        "note": MISFIT if p is not None and p.value is None else None,
        "disputed": disputed or None,
    }
