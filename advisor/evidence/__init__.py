"""Measured figures of published benchmarks: readers of their formats, checks, and what is held."""

from advisor.evidence.formats import FORMATS, EvidenceError
from advisor.evidence.imports import Imported, NotHeld, add, discard, predict, release, waiting
from advisor.evidence.rows import KEY, OPTIONS, Source, catalog_names
from advisor.evidence.sources import read_sources
from advisor.evidence.state import export, held_line, measured_rows, status
