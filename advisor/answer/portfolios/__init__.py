"""Several workloads: each alone, on one fleet, and training on the machines of a service."""

from advisor.answer.portfolios.shared_fleet import hours_of_week, portfolio_answer, stretches
from advisor.answer.portfolios.train_and_serve import nothing_to_serve, with_training

__all__ = ["hours_of_week", "nothing_to_serve", "portfolio_answer", "stretches", "with_training"]
