"""What a detail page shows: the facts of a row, evidence, the maturity of a framework and the cost of a shape."""

from catalog.details import evidence, facts, freshness, shapes
from catalog.details.maturity import maturity, maturity_of
