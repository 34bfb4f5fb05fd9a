"""The training half of the scorecard: scores of measured runs, their intervals and the layouts of publishers."""
