"""What makes or judges the shipped figures: the scorecard, the fit, the track record, benchmarks and generated pages.

Nothing here answers a question. The package reads what these modules write: fixtures/calibration, fixtures/fidelity and
docs/reference.
"""
