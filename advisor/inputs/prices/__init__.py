"""Prices and assumptions of an answer: offers, hosts, hosted APIs, costs."""
