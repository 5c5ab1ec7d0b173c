"""Inputs that are nearly right: a seed with some edits, so that a parser is met behind its first
check, too."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

ODD = (
    *("\x00", "\n", "\r\n", "\t", " ", "\u00a0", "\u200b", "\u202e", "\ufeff", "\u2028", "\u212a"),
    *("\ud800", "\\ud800", "\\u0000", "\U0001f600", "\u0661", "\uff11", "\u2460", "\u00df", "%00"),
    *("%0d%0a", "%2e", "%", '"', "'", "\\", "/", "//", "#", "?", "@", ":", ",", ";", "=", "."),
    *("[", "]", "{", "}", "[" * 200, '{"a":' * 200, "0", "-0", "1e400", "1" * 5_000, "NaN"),
    *("Infinity", "null", "true", "0x7f", "127.0.0.1", "::1", "xn--", "t=", "v1=", "v1,", "whsec_"),
)
"""What parsers of one thing or another read in their own way."""

ODD_BYTES = (
    *(word.encode("utf-8", "surrogatepass") for word in ODD),
    *(
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xff\xfe",
        b"\x00\x00\x00{",
        b"\x80",
        b"\r",
        b"\x1f",
    ),
)


@st.composite
def texts(draw: st.DrawFn, seeds: Sequence[str], *, odd: Sequence[str] = ODD) -> str:
    """One of `seeds` with up to six edits, or any text."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.text(max_size=200))
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 6))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.one_of(st.just(begin), st.integers(begin, min(len(text), begin + 8))))
        new = draw(
            st.one_of(st.sampled_from(odd), st.text(max_size=4), st.just(text[begin:end] * 2))
        )
        text = text[:begin] + new + text[end:]
    return text


@st.composite
def bodies(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """The same for bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    body = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 6))):
        begin = draw(st.integers(0, len(body)))
        end = draw(st.one_of(st.just(begin), st.integers(begin, min(len(body), begin + 8))))
        new = draw(
            st.one_of(
                st.sampled_from(ODD_BYTES), st.binary(max_size=4), st.just(body[begin:end] * 2)
            )
        )
        body = body[:begin] + new + body[end:]
    return body


def values() -> st.SearchStrategy[object]:
    """Whatever JSON or TOML can say, and a little more."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from(ODD),
        st.text(max_size=12),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
        ),
        max_leaves=8,
    )
