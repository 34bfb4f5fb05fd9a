"""The answer to a training question: which machines, which layout, how long, at what cost, and why."""

from advisor.answer.training.advice import member, recommend
from advisor.answer.training.sentences import deadline_said
