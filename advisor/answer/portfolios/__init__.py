"""Several workloads: each alone, on one fleet, and training on the machines of a service."""

from advisor.answer.portfolios.decision import decided
from advisor.answer.portfolios.shared_fleet import portfolio_answer
from advisor.answer.portfolios.train_and_serve import nothing_to_serve, with_training
