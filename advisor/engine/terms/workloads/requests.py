"""What a request consists of beside its text: turns of a conversation, images, and the unit that people pay for."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Z95 = 1.6448536269514722  # 95th percentile of the standard normal


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Token lengths: constant (p95 == mean), or log-normal with this mean and 95th percentile."""

    mean_tokens: float
    p95_tokens: float

    def longer(self, tokens: float) -> "Lengths":
        """The lengths with this many tokens added to each."""
        return Lengths(mean_tokens=self.mean_tokens + tokens, p95_tokens=self.p95_tokens + tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixClass:
    """Requests that begin with one of a few shared prefixes, such as system prompts or documents.

    Requests of no class share nothing. A server with prefix caching computes a shared prefix once.
    """

    fraction: float  # of all requests
    shared_tokens: float  # at the start of each prompt
    prefixes: int = 1  # different ones; each request has one of them at random


def log_normal_sigma(lengths: Lengths) -> float:
    """Sigma of the log-normal with this mean and p95. No log-normal has a p95 above 3.87 means; it gives the widest."""
    ratio = max(lengths.p95_tokens / lengths.mean_tokens, 1.0)
    return Z95 - math.sqrt(max(Z95**2 - 2 * math.log(ratio), 0.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """A conversation of an agent or a chat: each turn's prompt repeats the conversation so far.

    Turn t of `count` has the first prompt plus t - 1 answers and t - 1 additions (a tool result or a user message).
    All but the new addition was computed before, so the server finds it in its prefix cache unless it evicted it
    while the client ran its tool.
    """

    count: int
    added_tokens: float  # per turn: tool result or user message
    wait_s: float  # from an answer to the next turn; the KV cache of the conversation is idle meanwhile
    first: Lengths  # prompt of the first turn
    answer_tokens: float
    shared_tokens: float = 0.0  # of the first prompt, that conversations have in common
    repeated_hit_fraction: float = 0.0  # part of the prefix cache hits that an eviction loses

    @property
    def first_tokens(self) -> float:
        """Mean prompt of the first turn."""
        return self.first.mean_tokens

    @property
    def grown_tokens(self) -> float:
        """Tokens that each turn adds to the next prompt."""
        return self.answer_tokens + self.added_tokens

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean prompt over all turns."""
        return self.first_tokens + (self.count - 1) / 2 * self.grown_tokens

    @property
    def last_prompt_tokens(self) -> float:
        """Prompt of the last turn of a mean conversation."""
        return self.first_tokens + (self.count - 1) * self.grown_tokens

    @property
    def idle_tokens(self) -> float:
        """Mean length of a conversation that waits for its next turn."""
        return self.mean_prompt_tokens - self.grown_tokens / 2 + self.answer_tokens

    def with_images(self, tokens: float) -> "Turns":
        """The same turns with images of this many tokens in the first prompt and in every addition."""
        return replace(self, first=self.first.longer(tokens), added_tokens=self.added_tokens + tokens)

    def idle_conversations(self, requests_per_s: Any) -> Any:
        """Conversations that wait for their next turn, by Little's law, at this rate of turns."""
        return requests_per_s * self.wait_s * (self.count - 1) / self.count

    def kept_fraction(self, capacity_tokens: Any, running_tokens: Any, requests_per_s: Any) -> Any:
        """Share of the idle conversations whose KV cache still fits beside the running requests.

        capacity_tokens: KV cache of a lane; running_tokens: of its running requests; requests_per_s: its turns.
        """
        held = np.maximum(self.idle_conversations(requests_per_s) * self.idle_tokens, 1e-9)
        return np.clip((capacity_tokens - running_tokens) / held, 0.0, 1.0)


def over_turns(turns: Turns) -> tuple[Lengths, float, Turns]:
    """(prompt lengths over all turns, prefix cache hits as a fraction of them, turns with the part of the hits that an
    eviction loses).

    The lengths are the log-normal with the mean and variance of all turns.
    """
    n, grown, mean, first = turns.count, turns.grown_tokens, turns.mean_prompt_tokens, turns.first
    variance = math.expm1(log_normal_sigma(first) ** 2) * first.mean_tokens**2 + grown**2 * (n * n - 1) / 12
    sigma = math.sqrt(math.log1p(variance / mean**2))
    p95 = mean * math.exp(Z95 * sigma - sigma**2 / 2)
    # the mean over turns of the prompt without its addition; the first turn finds only what is shared
    repeated = (n - 1) / n * (mean + grown / 2 - turns.added_tokens) / mean
    hits = repeated + turns.shared_tokens / n / mean
    lengths = Lengths(mean_tokens=mean, p95_tokens=max(p95, mean))
    return lengths, hits, replace(turns, repeated_hit_fraction=repeated)


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """Images of a mean request, at the resolution at which clients send them."""

    per_request: float
    width_px: float
    height_px: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnImages:
    """Images that a mean request asks for; steps None: the model's default."""

    per_request: float
    width_px: float
    height_px: float
    steps: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkUnit:
    """What the planner counts: a task of an agent, an hour of audio, an image, a scored document."""

    name: str
    per_request: float
    batch: int = 1  # costs are shown for this many
