"""Numbers of machines as people write them: 2 x 8 H100, 16 h100-sxm, H100: 16."""

import re

from advisor.workload.notation.quantities import Unclear, quantity_of, read

TIMES = r"[x×*]"
OF = r"(?:servers?|hosts?|machines?|nodes?|boxes)(?:\s+(?:of|with)(?:\s+each)?)?"
SERVERS = re.compile(rf"(\d{{1,6}})\s*(?:{TIMES}|{OF})\s*(\d{{1,3}})\s*(?:{TIMES}\s*|\s)(\S.*)", re.IGNORECASE)
COUNTED = re.compile(rf"(\d[\d,._]*\s?k?)\s*(?:{TIMES}\s*|\s)(\S.*)")
NAMED = re.compile(rf"(.+?)\s*(?:[:=]\s*|\s{TIMES}\s*)([^:=]*)")
SEPARATOR = re.compile(r"[;\n+]|,(?!\d{3}\b)|\s+and\s+")


def machines(text: str) -> dict[str, int | str] | None:
    """Number by name of accelerator; None where a part has no number. A number that cannot be read stays text."""
    found: dict[str, int | str] = {}
    for part in filter(None, (part.strip() for part in SEPARATOR.split(text))):
        pair = counted(part)
        if pair is None:
            return None
        name, number = pair
        before = found.get(name)
        found[name] = number + before if isinstance(number, int) and isinstance(before, int) else number
    return found


def counted(part: str) -> tuple[str, int | str] | None:
    """(name, number) of one part."""
    if (servers := SERVERS.fullmatch(part)) and has_letter(servers[3]):
        return servers[3].strip(), int(servers[1]) * int(servers[2])
    if (several := COUNTED.fullmatch(part)) and has_letter(several[2]):
        return several[2].strip(), number_of(several[1])
    if (named := NAMED.fullmatch(part)) and has_letter(named[1]):
        return named[1].strip(), number_of(named[2].strip())
    return None


def has_letter(name: str) -> bool:
    return any(each.isalpha() for each in name)


def number_of(text: str) -> int | str:
    try:
        number = read(text, quantity_of("owned"))
    except Unclear:
        return text
    return number if isinstance(number, int) else text
