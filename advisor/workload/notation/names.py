"""What people write for a name of the catalog: any case, display names, parts of names such as H100 or qwen3-235b."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from advisor.workload.text import either, fold

# words that name a maker or a product line; they add nothing to a chip's own words
MAKERS = frozenset("nvidia amd intel google aws amazon tesla geforce instinct accelerator gpu chip card the".split())
TUNED = frozenset("instruct chat it hf base pt thinking bf16".split())  # a tuned model has the shape of its base
JOINED = re.compile(r"(?<=\d) +(?=(?:gb|gib|tb|b|k|m|t|x)\b)")
PIECE = re.compile(r"\d+\.\d+[a-z]*|bf16|[a-z]+|\d+[a-z]*")  # Qwen3-235B-A22B: qwen, 3, 235b, a, 22b
WORD = re.compile(r"[a-z0-9]+")
MOST_LISTED = 12  # candidates of an error


@lru_cache(maxsize=4096)
def words_of(name: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """The words of a name; a number and its unit are one."""
    return tuple(pattern.findall(JOINED.sub("", name.casefold())))


def compact(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one kind. `spellings`: folded text -> names; `described`: name -> the words that describe it.

    ordered: a part of a name must have the words in their order, as in names of models.
    """

    known: frozenset[str]
    spellings: Mapping[str, list[str]]
    described: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ordered: bool = False

    def meant_by(self, written: str) -> list[str]:
        """The names that the text could mean, in the catalog's order; empty: none."""
        if written in self.known:
            return [written]
        exact = self.spellings.get(fold(written)) or self.spellings.get(compact(written))
        return exact or self.containing(written)

    def containing(self, written: str) -> list[str]:
        """The names described by all words of the text; those that begin with them go before the others."""
        owner, _, short = written.rpartition("/") if self.ordered else ("", "", written)
        asked = words_of(short, PIECE if self.ordered else WORD)
        asked = tuple(word for word in asked if word not in MAKERS) or asked
        if not self.described or not asked or len(written) > 120:
            return []
        able = [name for name in self.described if not owner or fold(name.rpartition("/")[0]) == fold(owner)]
        if not self.ordered:
            return [name for name in able if all(says(word, self.described[name]) for word in asked)]
        bare = untuned(asked)
        same = [name for name in able if untuned(self.described[name]) == bare]
        same = same or [name for name in able if untuned(self.described[name]) == undated(bare)]
        same = [name for name in same if ("thinking" in self.described[name]) == ("thinking" in asked)] or same
        begin = [name for name in able if self.described[name][: len(asked)] == asked]
        inside = [name for name in able if follows(asked, self.described[name])]
        return same or begin or inside


def says(word: str, words: Iterable[str]) -> bool:
    """Whether a word is one of the words, or one without its number: SXM of SXM5, Gaudi of Gaudi3."""
    unnumbered = len(word) > 1 and word.isalpha()
    return any(each == word or unnumbered and each.rstrip("0123456789") == word for each in words)


def untuned(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words without those of a tuned model, and without the maker in Meta-Llama or NVIDIA-Nemotron."""
    own = words[1:] if words[:2] == ("meta", "llama") or words[:1] == ("nvidia",) else words
    return tuple(word for word in own if word not in TUNED)


def undated(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words without the month of a release at their end: 2507, 0324."""
    return words[:-1] if words and len(words[-1]) == 4 and words[-1].isdigit() else words


def follows(asked: Iterable[str], words: Iterable[str]) -> bool:
    """Whether the words have those asked for, in their order."""
    rest = iter(words)
    return all(word in rest for word in asked)


def names_of(rows: Mapping[str, Iterable[str]], *, ordered: bool = False, partly: bool = True) -> Names:
    """Names and their further spellings, the most exact first; `partly`: parts of these stand for the name too."""
    spellings: dict[str, list[str]] = {}
    for name, others in rows.items():
        for written in dict.fromkeys(each for text in (name, *others) for each in (fold(text), compact(text))):
            spellings.setdefault(written, []).append(name)
    pattern = PIECE if ordered else WORD
    texts = {name: [*others][:1] if ordered else [name, *others] for name, others in rows.items()}
    described = {name: tuple(w for text in given for w in words_of(text, pattern)) for name, given in texts.items()}
    return Names(frozenset(rows), spellings, described if partly else {}, ordered)


def several(written: str, names: Iterable[str]) -> str:
    """The message for a text that could mean each of the names."""
    found = list(names)
    more = f" or {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    listed = ", ".join(found[:MOST_LISTED]) + more if more else either(found)
    return f"{written} could mean {listed}; write one of them"
