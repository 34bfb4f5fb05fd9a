"""Scores of predictions against measured rows: the scorecard, its report, reliability and peers."""
