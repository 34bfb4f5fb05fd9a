"""The pictures: well-formed, named, safe for logarithmic axes and for hostile text."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from advisor.result import Memory, Operator, ParetoPoint
from advisor.web.charts import plots as charts
from advisor.web.charts.plots import drawable, memory_bar, memory_parts, pareto, step_bar
from catalog.charts import FINE_STEPS, Log, log_scale

SVG = ElementTree.Element


def point(tpot_ms: float | None, usd: float | None, **more: Any) -> ParetoPoint:
    base = {
        "label": "x", "accelerator": "x", "accelerator_count": 1, "output_tokens_per_s_per_user": None,
        "rank": None, "frontier": False, "meets_slo": True, "simulated": False,
    }  # fmt: skip
    return ParetoPoint.read({**base, "tpot_ms": tpot_ms, "usd_per_mtok_output": usd, **more})


def memory(**parts_gib: float) -> Memory:
    names = ("weights_gib", "kv_gib", "activations_gib", "overhead_gib", "free_gib")
    return Memory.read({**dict.fromkeys(names, 0.0), **parts_gib})


def operator(name: str, time_s: float, bound: str) -> Operator:
    known = {"phase": "decode", "operator": name, "time_s": time_s, "flops": None, "bytes": None, "bound": bound}
    return Operator.read(known)


def marks(svg: str, kind: str) -> list[SVG]:
    return [node for node in ElementTree.fromstring(svg).iter() if f"mark {kind}" in (node.get("class") or "")]


def test_each_point_is_drawn_by_what_it_is() -> None:
    shown = [point(10, 2, frontier=True), point(20, 3), point(90, 1, meets_slo=False), point(15, 1, rank=1)]
    svg = pareto(shown, 40, "/o/")
    assert [len(marks(svg, kind)) for kind in ("frontier", "dominated", "missed")] == [1, 2, 1]
    assert [link.get("href") for link in ElementTree.fromstring(svg).iter("a")] == ["/o/1"]


@pytest.mark.parametrize("bad", [0, -1, None])
def test_what_a_log_axis_cannot_show_is_left_out_and_counted(bad: float | None) -> None:
    svg = pareto([point(10, 2), point(bad, 2), point(10, bad)])
    assert len(marks(svg, "dominated")) == 1
    assert "2 cannot be shown" in svg
    assert pareto([point(bad, bad)]) == "" == pareto([])


def test_lower_left_is_cheaper_and_faster() -> None:
    first, second = (
        (float(node.get("cx") or 0), float(node.get("cy") or 0))
        for node in marks(pareto([point(10, 2), point(30, 8)]), "dominated")
    )
    assert first[0] < second[0] and first[1] > second[1]


def test_the_service_level_is_a_line_inside_the_picture() -> None:
    svg = pareto([point(10, 2), point(12, 3)], slo_ms=400)
    (line,) = [n for n in ElementTree.fromstring(svg).iter() if n.get("class") == "slo-line"]
    assert charts.LEFT < float((line.get("d") or "M0 ")[1:].split()[0]) < charts.WIDTH
    assert "SLO 400 ms" in svg


def test_text_from_outside_cannot_become_markup() -> None:
    svg = pareto([point(10, 2, rank=1, label='<script>"&')], base='"><script>')
    assert "<script" not in svg
    ElementTree.fromstring(svg)


def test_a_large_crowd_is_thinned_but_never_the_frontier() -> None:
    crowd = [point(10 + n, 2 + n) for n in range(5000)] + [point(9 + n, 2, frontier=True) for n in range(50)]
    svg = pareto(crowd)
    assert len(marks(svg, "dominated")) <= charts.MAX_POINTS
    assert len(marks(svg, "frontier")) == 50


@pytest.mark.parametrize("values", [[5.0], [1.0, 1.0], [0.001, 1e6], [19.0, 21.0]])
def test_an_axis_always_has_ticks_inside_it(values: list[float]) -> None:
    axis = log_scale(values, 0, 100)
    assert 1 <= len(axis.ticks()) <= 6
    assert all(0 <= axis(tick) <= 100 for tick in axis.ticks())
    assert all(0 <= axis(value) <= 100 for value in values)


def test_ends_of_an_axis_are_its_pixels() -> None:
    axis = Log(1, 100, 10, 210, FINE_STEPS)
    assert (axis(1), axis(10), axis(100)) == (10, 110, 210)


def test_memory_parts_fill_the_bar_and_say_their_size() -> None:
    overfull = memory(weights_gib=30, kv_gib=60, activations_gib=5, overhead_gib=5, free_gib=-3)
    svg = memory_bar(overfull)
    assert "KV cache 60.0" in svg
    assert sum(part["share"] for part in memory_parts(overfull)) == pytest.approx(1)
    assert memory_parts(overfull)[-1]["value_gib"] == 0
    assert memory_bar(memory()) == ""


def test_a_step_is_coloured_by_its_bounds() -> None:
    operators = [operator("ffn", 2e-3, "memory"), operator("odd", 1e-3, 'x" onload="')]
    svg = step_bar(operators, "decode")
    assert 'class="bound-memory"' in svg and 'class="bound-other"' in svg and "onload=&quot;" in svg
    assert step_bar([operator("ffn", 0, "memory")], "decode") == ""


def test_every_picture_is_named_and_described() -> None:
    for svg in (pareto([point(1, 1)]), memory_bar(memory(weights_gib=1))):
        root = ElementTree.fromstring(svg)
        assert root.get("aria-label") and root.findtext("title") and root.findtext("desc")


def test_no_style_is_written_inline() -> None:
    assert "style=" not in pareto([point(1, 1, rank=1)], 5, "/") + memory_bar(memory(weights_gib=1))


def test_drawable_keeps_order() -> None:
    assert [p.tpot_ms for p in drawable([point(1, 1), point(0, 1), point(2, 1)])] == [1, 2]


def test_far_slower_and_dearer_points_leave_room_but_ranked_ones_stay() -> None:
    shown = [point(10, 2), point(500, 2), point(10, 2000), point(500, 3, rank=4)]
    near, left_out = charts.in_view(shown, slo_ms=40)
    assert [p.rank for p in near] == [None, 4] and left_out == {"undrawable": 0, "far": 2}
    assert len(charts.in_view(shown[:2], None)[0]) == 2
