"""Tests of imported measurements."""
