"""Answers that are kept once they are read and drawn, and several on one page: the list and the comparison."""
