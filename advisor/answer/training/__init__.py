"""The answer to a training question: which machines, which layout, how long, at what cost, and why."""

from advisor.answer.training.advice import member, recommend

__all__ = ["member", "recommend"]
