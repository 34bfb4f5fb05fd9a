"""Encoders and image generators measured on one H200 against the engine (docs/how-to/workload-types.md)."""

import re
from pathlib import Path

import pytest

from tests.measured_modules import measured_ms, predicted_ms, rows, shipped_catalog

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "workload-types.md"
LINE = re.compile(r"^\| `([^`]+)` \| (\d+) \| ([\d.]+) to ([\d.]+) \|$", re.M)


def test_the_page_shows_how_far_off_each_measured_module_is():
    catalog, found = shipped_catalog(), {}
    for row in rows():
        found.setdefault(row["module"], []).append(predicted_ms(catalog, row) / measured_ms(row))
    shown = LINE.findall(PAGE.read_text())
    assert [module for module, *_ in shown] == list(found) and len(rows()) > 30
    for module, cases, least, most in shown:
        ratios = found[module]
        assert int(cases) == len(ratios)
        assert (float(least), float(most)) == pytest.approx((min(ratios), max(ratios)), abs=0.02)


def test_transformers_are_predicted_within_a_factor_of_two_and_never_slower():
    """What is compared ran in PyTorch without fused kernels, so the engine should be faster, but not by much."""
    catalog = shipped_catalog()
    ran_fused = [row for row in rows() if row["part"] in ("pass", "encoder") or row["module"].startswith("siglip")]
    ratios = [predicted_ms(catalog, row) / measured_ms(row) for row in ran_fused]
    assert len(ratios) == 20 and all(0.5 < ratio <= 1.0 for ratio in ratios)
