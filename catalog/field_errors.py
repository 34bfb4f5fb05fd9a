"""Errors of input by field, as forms, the command line and problem documents list them."""

MAX_ERRORS = 50  # reported in full; the rest are counted


def error(field: str, message: str, allowed: str = "") -> dict[str, str]:
    """One error, with long texts cut."""
    return {"field": cut(field, 200), "message": cut(message, 1000), "allowed": cut(allowed, 4000)}


def cut(text: str, max_characters: int) -> str:
    return text if len(text) <= max_characters else f"{text[:max_characters]}..."
