"""What a request consists of beside its text: turns of a conversation, images."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from advisor.engine.terms import DrawnImages, Kind, Lengths, WorkUnit, kind_named, over_turns
from advisor.engine.terms import Images as Pictures
from advisor.engine.terms import Turns as Conversation
from advisor.workload.fields import Positive, Section
from advisor.workload.text import error

HOUR_S = 3600.0
ONE_VECTOR = {"mean": 1.0}  # output of an embedding request


class Turns(Section):
    """Conversations of an agent or a chat, in which each prompt repeats the turns before it.

    `traffic.input_tokens` is the first prompt; each turn adds the answer and `added_tokens` (a tool result or a user
    message). `wait_s`: how long the tool or the user takes; with traffic.users it is their think time.
    """

    count: Annotated[int, Field(ge=2, le=1000)]
    added_tokens: Annotated[float, Field(ge=0, le=1e7)]
    wait_s: Annotated[float, Field(ge=0, le=1e6)] | None = None
    conversations_per_hour: Positive | None = None  # instead of requests_per_s


Pixels = Annotated[float, Field(ge=1, le=20_000)]


class Images(Section):
    """Images of a mean request (in a conversation, of every turn), at the resolution at which clients send them."""

    per_request: Annotated[float, Field(gt=0, le=1000)] = 1.0
    width_px: Pixels = 1024.0
    height_px: Pixels = 1024.0


WINDOW_S, POSITIONS_PER_S = 30.0, 50.0  # of Whisper (arXiv 2212.04356, section 2.2): audio is padded to the window
TOKENS_PER_WORD = 4 / 3  # of English text (OpenAI help center: 100 tokens are about 75 words)


class Audio(Section):
    """Speech to transcribe: hours of audio that arrive per hour, which is also the number of live streams.

    A clip longer than 30 s is several requests, a shorter one is padded. The transcript has `words_per_minute` (150:
    conversational English, National Center for Voice and Speech), unless traffic.output_tokens is given.
    """

    hours_per_hour: Positive
    clip_s: Annotated[float, Field(gt=0, le=1e5)] = WINDOW_S
    words_per_minute: Annotated[float, Field(gt=0, le=1000)] = 150.0


class ImageOutput(Section):
    """Images to generate; `steps` empty: the model's default."""

    width_px: Annotated[float, Field(ge=64, le=4096)] = 1024.0
    height_px: Annotated[float, Field(ge=64, le=4096)] = 1024.0
    steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    images_per_request: Annotated[float, Field(ge=1, le=100)] = 1.0


PROMPT_TOKENS = {"mean": 77.0}  # CLIP's length; prompts are padded, so their length changes nothing


def window_audio_s(audio: Mapping[str, Any]) -> float:
    """Seconds of speech in a mean window."""
    clip_s: float = audio["clip_s"]
    return clip_s / math.ceil(clip_s / WINDOW_S)


def audio_traffic(audio: Mapping[str, Any]) -> dict[str, Any]:
    """The traffic figures that follow from traffic.audio."""
    speech_s = window_audio_s(audio)
    words = audio["words_per_minute"] / 60.0 * speech_s
    return {
        "input_tokens": {"mean": max(speech_s * POSITIONS_PER_S, 1.0)},
        "output_tokens": {"mean": max(words * TOKENS_PER_WORD, 1.0)},
        "requests_per_s": {"mean": audio["hours_per_hour"] / speech_s, "peak": None},
    }


def turn_rate(traffic: Mapping[str, Any]) -> dict[str, Any] | None:
    """Requests/s that follow from traffic.turns.conversations_per_hour; None if it is not given."""
    turns = traffic.get("turns")
    if not turns or turns["conversations_per_hour"] is None:
        return None
    return {"mean": turns["conversations_per_hour"] * turns["count"] / HOUR_S, "peak": None}


def states_rate(traffic: Mapping[str, Any]) -> bool:
    """Whether a raw traffic section states its rate inside one of these sections."""
    turns = traffic.get("turns")
    by_turns = isinstance(turns, Mapping) and turns.get("conversations_per_hour") is not None
    return by_turns or isinstance(traffic.get("audio"), Mapping)


def contents_errors(traffic: Mapping[str, Any], kind: Kind) -> list[dict[str, str]]:
    """Errors of these sections, for a traffic section with its derived figures (traffic.filled)."""
    errors = turns_errors(traffic, kind) if traffic.get("turns") else []
    if traffic.get("images") and not kind.generates_tokens:
        message = f"cannot be used with kind {kind.name}: image embeddings are not modeled"
        errors.append(error("traffic.images", message, "kind: serving or batch"))
    if traffic.get("audio"):
        errors += audio_errors(traffic, kind)
    if (kind.makes == "images") != bool(traffic.get("image_output")):
        field = "traffic.image_output"
        errors.append(
            error(field, f"is required for kind {kind.name}", "{width_px, height_px, steps, images_per_request}")
            if kind.makes == "images"
            else error(field, f"cannot be used with kind {kind.name}", "kind: image_generation")
        )
    return errors + document_errors(traffic, kind)


def document_errors(traffic: Mapping[str, Any], kind: Kind) -> list[dict[str, str]]:
    field, given = "traffic.documents_per_request", traffic.get("documents_per_request")
    if kind.makes == "scores" and given is None:
        return [error(field, "is required for kind rerank", "documents that a request ranks, 1 or more")]
    if kind.makes != "scores" and given is not None:
        return [error(field, f"cannot be used with kind {kind.name}", "kind: rerank")]
    return []


def audio_errors(traffic: Mapping[str, Any], kind: Kind) -> list[dict[str, str]]:
    field, found = "traffic.audio", audio_traffic(traffic["audio"])
    if not (kind.generates_tokens and kind.has_arrivals):
        return [error(field, f"cannot be used with kind {kind.name}", "kind: serving")]
    others = [key for key in ("turns", "images", "trace", "users") if traffic.get(key)]
    if others:
        return [error(f"traffic.{others[0]}", "cannot be used with traffic.audio", "remove it")]
    errors = []
    if traffic["input_tokens"].get("mean") != found["input_tokens"]["mean"]:
        errors.append(error("traffic.input_tokens", "contradicts traffic.audio", "remove it"))
    rate = traffic["requests_per_s"]
    if rate and not math.isclose(rate["mean"], found["requests_per_s"]["mean"], rel_tol=1e-9):
        errors.append(error("traffic.requests_per_s", "contradicts traffic.audio", "remove it"))
    return errors


def turns_errors(traffic: Mapping[str, Any], kind: Kind) -> list[dict[str, str]]:
    turns, field = traffic["turns"], "traffic.turns"
    if not (kind.generates_tokens and kind.has_arrivals):
        return [error(field, f"cannot be used with kind {kind.name}", "kind: serving")]
    if traffic["trace"]:
        return [error(field, "cannot be used with traffic.trace, whose prompts are recorded", "only one of the two")]
    if any("trace" in (traffic[key] or {}) for key in ("input_tokens", "output_tokens")):
        return [error(field, "cannot be used with lengths from a trace file", "a number or {mean, p95}")]
    users, errors = traffic["users"], []
    if turns["wait_s"] is None and not users:
        errors.append(error(f"{field}.wait_s", "is required", "seconds from an answer to the next turn, >= 0"))
    if users and turns["wait_s"] not in (None, users["think_s"]):
        errors.append(error(f"{field}.wait_s", "contradicts traffic.users.think_s", "remove it"))
    stated, rate = turn_rate(traffic), traffic["requests_per_s"]
    if stated and users:
        errors.append(error(f"{field}.conversations_per_hour", "contradicts traffic.users", "only one of the two"))
    elif stated and rate and not math.isclose(rate["mean"], stated["mean"], rel_tol=1e-9):
        allowed = "only one of the two"
        errors.append(error(f"{field}.conversations_per_hour", "contradicts traffic.requests_per_s", allowed))
    return errors


# --- engine values ----------------------------------------------------------------------------------------------


def lengths_of(section: Mapping[str, Any]) -> Lengths:
    """Token lengths of a section with a mean and an optional p95."""
    return Lengths(mean_tokens=section["mean"], p95_tokens=section["p95"] if "p95" in section else section["mean"])


def prompts_of(traffic: Mapping[str, Any]) -> tuple[Lengths, float, Conversation | None]:
    """(prompt lengths, prefix cache hits as a fraction of them, conversation) of a traffic section; over all turns."""
    first, shared = lengths_of(traffic["input_tokens"]), float(traffic["prefix_cache_hit_rate"])
    for each in traffic.get("prefixes") or ():  # the mean over all requests, for what knows no classes
        shared += each["share"] * each["tokens"] / first.mean_tokens
    given = traffic.get("turns")
    if not given:
        return first, shared, None
    wait_s = traffic["users"]["think_s"] if given["wait_s"] is None else given["wait_s"]
    turns = Conversation(
        count=given["count"],
        added_tokens=given["added_tokens"],
        wait_s=wait_s,
        first=first,
        answer_tokens=traffic["output_tokens"]["mean"],
        shared_tokens=shared * first.mean_tokens,
    )
    return over_turns(turns)


def images_of(traffic: Mapping[str, Any]) -> Pictures | None:
    """The images of a mean request; None without any."""
    given = traffic.get("images")
    return Pictures(**given) if given else None


def drawing_of(traffic: Mapping[str, Any]) -> DrawnImages | None:
    """The images that a mean request generates; None without any."""
    given = traffic.get("image_output")
    if not given:
        return None
    rest = {key: value for key, value in given.items() if key != "images_per_request"}
    return DrawnImages(per_request=given["images_per_request"], **rest)


def unit_of(traffic: Mapping[str, Any]) -> WorkUnit | None:
    """What the planner counts, if not tokens."""
    if turns := traffic.get("turns"):
        return WorkUnit(name="conversation", per_request=1.0 / turns["count"])
    if drawn := traffic.get("image_output"):
        return WorkUnit(name="image", per_request=drawn["images_per_request"], batch=1000)
    if audio := traffic.get("audio"):
        return WorkUnit(name="audio hour", per_request=window_audio_s(audio) / HOUR_S)
    if documents := traffic.get("documents_per_request"):
        return WorkUnit(name="scored document", per_request=documents, batch=1000)
    if images := traffic.get("images"):
        return WorkUnit(name="image", per_request=images["per_request"], batch=1000)
    return None


def with_one_vector(raw: dict[str, Any]) -> dict[str, Any]:
    """The raw workload; for embeddings, an output length that is missing or 0 becomes one vector per request."""
    traffic = raw.get("traffic")
    if kind_named(raw.get("kind")).generates_tokens or not isinstance(traffic, Mapping):
        return raw
    output = traffic.get("output_tokens")
    lengths = list(output.values()) if isinstance(output, Mapping) and "mean" in output else [output]
    is_empty = output is None or all(isinstance(n, int | float) and not isinstance(n, bool) and n == 0 for n in lengths)
    return {**raw, "traffic": {**traffic, "output_tokens": ONE_VECTOR}} if is_empty else raw
