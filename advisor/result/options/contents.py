"""What requests consist of beside text: conversations, and the cost of the unit that the planner counts."""

from advisor.result.base import Count, Fraction, Gib, Milliseconds, Number, PerSecond, Seconds, Section, Tokens, Usd


class UnitCost(Section):
    """Cost of what the planner counts: conversations, images, hours of audio, scored documents."""

    unit: str
    """What is counted."""
    count: Count
    """The costs are for this many units."""
    units_per_s: PerSecond | None
    """Units at the mean load, per second."""
    usd: Usd | None
    """Cost of `count` units at the mean load."""
    usd_at_capacity: Usd | None
    """Cost of `count` units at capacity."""


class Conversation(Section):
    """Turns whose prompts repeat the conversation so far."""

    turns: Count
    """Model calls of one conversation."""
    mean_prompt_tokens: Tokens
    """Mean prompt over all turns."""
    last_prompt_tokens: Tokens
    """Prompt of the last turn."""
    hit_fraction: Fraction | None
    """Prompt tokens found in the prefix cache if no waiting conversation is evicted."""
    reached_hit_fraction: Fraction | None
    """Prompt tokens found in the prefix cache of this deployment at the peak."""
    kept_fraction: Fraction | None
    """Waiting conversations whose KV cache stays on the accelerator at the peak."""
    waiting_per_replica: Number | None
    """Conversations of a replica that wait for their next turn at the peak."""
    waiting_kv_gib: Gib | None
    """KV cache of these conversations on each accelerator, if all were kept."""
    duration_s: Seconds | None
    """Mean duration of a conversation, waits included."""


class ImageInput(Section):
    """Images that requests bring, as tokens of the prompt and as work of the vision tower."""

    per_request: Number
    """Images of a mean request."""
    tokens_per_image: Tokens
    """Tokens of the language model for one image, by the model's own rule."""
    patches_per_image: Number
    """Patches that the vision tower computes for one image."""
    encoder_ms: Milliseconds | None
    """Time of the vision tower for the images of one request, part of the TTFT."""
    encoder_gib: Gib | None
    """Weights of the vision tower on each accelerator, part of the weights."""
