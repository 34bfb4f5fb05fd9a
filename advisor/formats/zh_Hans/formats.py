"""Chinese numbers with separated thousands, as vendors print amounts. Django's own format has no separator."""

THOUSAND_SEPARATOR = ","
NUMBER_GROUPING = 3
