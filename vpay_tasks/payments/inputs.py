"""What callers give, looked at before anything is written."""

from __future__ import annotations

from collections.abc import Mapping

from vpay_tasks.errors import InvalidRequest

KEYS_MAX, KEY_MAX, VALUE_MAX = 50, 40, 500
"""Stripe's limits of metadata: it rides in every event, which has to stay small."""


def check_name(what: str, name: object) -> None:
    """Raise InvalidRequest for what can't be an id."""
    if not (isinstance(name, str) and 1 <= len(name) <= 64 and name.isprintable()):
        raise InvalidRequest(f"{what}: 1 to 64 printable characters")


def check_text(what: str, text: object, shortest: int, longest: int) -> None:
    """Raise InvalidRequest for what is no line of text; None is none."""
    if text is None:
        return
    if not (isinstance(text, str) and shortest <= len(text) <= longest and text.isprintable()):
        raise InvalidRequest(f"{what}: {shortest} to {longest} printable characters")


def check_mode(livemode: object) -> None:
    """Raise InvalidRequest for what is neither True nor False: None would be test mode."""
    if not isinstance(livemode, bool):
        raise InvalidRequest("livemode: True or False")


def check_url(what: str, url: object) -> None:
    """Raise InvalidRequest for what no browser can be sent to."""
    if not (
        isinstance(url, str)
        and len(url) <= 2_048
        and url.isprintable()
        and url.startswith(("https://", "http://"))
    ):
        raise InvalidRequest(f"{what}: an http(s) URL of at most 2,048 characters")


def checked(metadata: object) -> Mapping[str, str]:
    """`metadata` if it can be stored and sent; None is none. Raises InvalidRequest."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidRequest("metadata: a mapping of strings to strings")
    if len(metadata) > KEYS_MAX:
        raise InvalidRequest(f"metadata: {KEYS_MAX} keys at most")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidRequest("metadata: keys and values are strings")
        if not 1 <= len(key) <= KEY_MAX or len(value) > VALUE_MAX:
            raise InvalidRequest(
                f"metadata: keys of 1 to {KEY_MAX} characters, values of at most {VALUE_MAX}"
            )
        # Postgres refuses NUL, and UTF-8 half a surrogate pair.
        if any(c == "\x00" or "\ud800" <= c <= "\udfff" for c in key + value):
            raise InvalidRequest("metadata: no NUL, no lone surrogates")
    return metadata
