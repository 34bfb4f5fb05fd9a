"""Encoders and image generators measured on one H200 against the engine (docs/explanation/encoders.md)."""

import re
from pathlib import Path

import pytest

from tests.measured_modules import measured_ms, predicted_ms, rows, shipped_catalog

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "encoders.md"
LINE = re.compile(r"^\| `([^`]+)` \| ([\d,]+) x ([\d,]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.]+) \|$", re.M)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_page_shows_every_measured_row_with_what_the_engine_predicts():
    catalog, shown = shipped_catalog(), LINE.findall(PAGE.read_text())
    assert len(shown) == len(rows()) > 30
    for row, (module, count, size, measured, predicted, ratio) in zip(rows(), shown, strict=True):
        assert (module, number(count), number(size)) == (row["module"], float(row["count"]), float(row["size"]))
        found = predicted_ms(catalog, row)
        assert number(measured) == pytest.approx(measured_ms(row), rel=0.01)
        assert number(predicted) == pytest.approx(found, rel=0.02)
        assert float(ratio) == pytest.approx(found / measured_ms(row), abs=0.02)


def test_transformers_are_predicted_within_a_factor_of_two_and_never_slower():
    """What is compared ran in PyTorch without fused kernels, so the engine should be faster, but not by much."""
    catalog = shipped_catalog()
    ran_fused = [row for row in rows() if row["part"] in ("pass", "encoder") or row["module"].startswith("siglip")]
    ratios = [predicted_ms(catalog, row) / measured_ms(row) for row in ran_fused]
    assert len(ratios) == 20 and all(0.5 < ratio <= 1.0 for ratio in ratios)
