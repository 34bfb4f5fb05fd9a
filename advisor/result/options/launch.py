"""How to start an option: command, files, the load test, and whether every flag exists in that release."""

from advisor.result.base import Count, PerSecond, Seconds, Section, Tokens


class FlagCheck(Section):
    """Whether every option of a command exists in the release."""

    checked: bool
    """True: all options were found in the release's own list."""
    unknown: list[str]
    """Options that the list does not have."""
    source: str
    """Package and version that the list was read from, or why there is none."""


class LoadTest(Section):
    """A load test of one replica with the workload's lengths and rate."""

    requests: Count
    """Requests to send."""
    requests_per_s: PerSecond | None
    """Open loop: arrival rate at this replica; null for a closed loop."""
    concurrency: Count | None
    """Closed loop: requests in flight; null for an open loop."""
    input_tokens_mean: Tokens
    """Mean prompt length."""
    output_tokens_mean: Tokens
    """Mean output length; 0 for embeddings."""
    duration_s: Seconds | None
    """How long it takes at that rate."""
    commands: dict[str, str]
    """Load generator to its command."""
    flags: dict[str, FlagCheck]
    """Load generator to the check of its options."""


class Checkpoint(Section):
    """The weights that the command loads."""

    repository: str
    """Hugging Face ID; text in < > stands for a checkpoint to make or find."""
    origin: str
    """published, conversion (published by others), on_load (quantized while loading), cast (to 16 bits) or to_make."""
    step: str
    """What it is and what has to be done first."""
    quality: str
    """Against the published model: lossless, near_lossless or lossy."""


class Launch(Section):
    """Commands and files that serve exactly what was estimated."""

    command: str
    """Starts one replica; empty where no launch is known for the framework."""
    files: dict[str, str]
    """File name to its contents: scripts, Compose, Kubernetes, systemd."""
    flags: FlagCheck | None = None
    """Check of the command's options."""
    checkpoint: Checkpoint | None = None
    """The weights that the command loads; absent in answers before 0.2."""
    load_test: LoadTest | None = None
    """Load test of a replica; absent where no load generator can ask this server."""
