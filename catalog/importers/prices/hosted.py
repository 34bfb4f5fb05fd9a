"""Which model of the catalog a list of hosted models means, and what its seller calls it.

A name means a model only if it is that model's own, in another spelling: GLM-5-Turbo is not GLM-5.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from catalog.importers.prices.offers import Account

SELLERS = {  # names of litellm that differ from the catalog's
    "azure_ai": "azure",
    "bedrock": "bedrock_converse",
    "dashscope": "alibaba",
    "friendliai": "friendli",
}
VERTEX = "vertex_ai"  # litellm splits it by the maker of the model
FORMATS = re.compile(r"-(fp8|nvfp4|mxfp4|fp4|bf16|int8|int4|awq)$")
TRAINED = re.compile(r"-(?:instruct|it|hf|chat|maas)$")  # hosted models are tuned ones, also where lists leave that out
MAKERS = re.compile(r"^(?:databricks-|fw-|nvidia-|meta-(?=llama)|zai-(?=glm))")
ARN = re.compile(r"^(?:[a-z0-9]+\.)+(?=[a-z])")  # us.meta.llama3-3 of Bedrock and OCI
RELEASED = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|\d\d-\d\d|[01]\d[0-3]\d)(?=$|-free$)")  # the date of a release
CLOSED = re.compile(  # families whose weights nobody publishes, and names that mean whatever is newest
    r"gpt-(?!oss|j|neo)|chatgpt|o[134](?:$|-)|codex|computer-use|claude|gemini|palm|chat-bison|text-|code-bison"
    r"|grok-(?!1|2)|nova-|titan|sonar|davinci|babbage|ft:|qwen[0-9.]*-(?:max|plus|turbo|flash|long)|muse-spark-\d"
    r"|auto(?:$|-)|free$|.*-latest$"
)
VERSION = re.compile(r"-v\d+:\d+$")  # of Bedrock


def seller(name: str) -> str:
    """The catalog's slug of a provider of litellm."""
    return "google-vertex" if name.startswith(VERTEX) else SELLERS.get(name, name)


def own_name(key: str, provider: str) -> str:
    """What the provider calls the model: litellm puts its own name of the provider before it."""
    first, _, rest = key.partition("/")
    return rest if rest and (provider == first or provider.startswith(f"{first}-")) else key


def spelled(name: str) -> str:
    """A name of a model in one spelling, without its owner, form of training, number format and signs."""
    tail = VERSION.sub("", name.split("/")[-1].lower())
    tail = ARN.sub("", re.sub(r"(?<=\d)p(?=\d)", ".", tail)).replace("_", "-").replace(".", "-")
    tail = MAKERS.sub("", MAKERS.sub("", tail))
    while (shorter := TRAINED.sub("", FORMATS.sub("", tail))) != tail:
        tail = shorter
    return re.sub(r"[^a-z0-9:@]+", "", tail)


def number_format(name: str) -> str:
    """The format of the weights that a name ends with; empty: it does not say."""
    match = FORMATS.search(TRAINED.sub("", name.lower()))
    return match[1] if match else ""


def is_closed(name: str) -> bool:
    """Whether a name is of a family that only its maker can serve, or of no model in particular."""
    return CLOSED.match(ARN.sub("", name.split("/")[-1].lower())) is not None


def undated(name: str) -> str:
    """A name without the date of its release: of deepseek-v4-flash-20260731, and of deepseek-v4-flash-0731."""
    return RELEASED.sub("", name)


def note_lacking(
    account: Account, catalog: "Models", provider: str, name: str, hf_id: str = "", tokens: int = 0
) -> None:
    """Notes a hosted model that the catalog lacks, with who serves it and how much it is used.

    Not of closed families, and not another release of a model that the catalog has.
    """
    plain = undated(name.partition(":")[0])
    if is_closed(name) or catalog.slug(provider, plain) is not None:
        return
    account.model(spelled(plain), plain.split("/")[-1], hf_id, provider, tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """The slugs of the catalog's models, by each of their names."""

    by_id: Mapping[str, str]  # names with their owner, in lower case: of the hub, and of endpoints that are known
    by_name: Mapping[str, str]  # spelled
    by_endpoint: Mapping[tuple[str, str], str]  # provider, and name in lower case

    def slug(self, provider: str, name: str) -> str | None:
        """The model that this endpoint serves; None: it is not in the catalog."""
        lower = name.lower()
        known = self.by_endpoint.get((provider, lower))
        return known or self.by_id.get(lower) or self.by_name.get(spelled(name))


def models(given: Iterable[tuple[str, str]], endpoints: Iterable[tuple[str, str, str]] = ()) -> Models:
    """The names of models (pairs of hf_id and slug) and of known endpoints (provider, name, slug)."""
    by_endpoint = {(provider, name.lower()): slug for provider, name, slug in endpoints}
    pairs = list(given)
    with_owner = [(name, slug) for (_, name), slug in by_endpoint.items() if "/" in name]
    return Models(
        by_id=_unanimous(with_owner) | {hf_id.lower(): slug for hf_id, slug in pairs},
        by_name=_unanimous([(spelled(hf_id), slug) for hf_id, slug in pairs]),
        by_endpoint=by_endpoint,
    )


def _unanimous(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The names that mean one slug only."""
    meant: dict[str, set[str]] = {}
    for name, slug in pairs:
        meant.setdefault(name, set()).add(slug)
    return {name: next(iter(slugs)) for name, slugs in meant.items() if len(slugs) == 1}


def per_million(usd_per_token: Decimal | None) -> str:
    """USD per million tokens with 6 decimals; empty for None."""
    return "" if usd_per_token is None else f"{usd_per_token * 10**6:.6f}"
