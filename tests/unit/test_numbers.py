"""Numbers as people write them: what is accepted, exactly, and what the messages show."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbins._numbers import parse_count, parse_number, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("-5", -5), ("200M", 200_000_000), ("200m", 200_000_000), ("1e9", 10**9),
        ("1E9", 10**9), ("1_000_000", 10**6), ("200,000,000", 200_000_000), ("200 million", 200_000_000),
        ("1.5 Million", 1_500_000), ("2.5k", 2500), ("3B", 3 * 10**9), ("3G", 3 * 10**9), ("1T", 10**12),
        ("1 trillion", 10**12), (" 12 ", 12), ("1.", 1), ("12345678901234567891", 12345678901234567891),
        ("10 thousand", 10_000), ("+3", 3), ("1.25e2", 125),
    ],
)  # fmt: skip
def test_counts(text: str, value: int) -> None:
    found = parse_count(text)
    assert found == value
    assert isinstance(found, int)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1%", 0.001), ("1e-6", 1e-6), ("1/1000", 0.001), ("1 in a million", 1e-6), ("1 in 1000", 0.001),
        ("one in a thousand", 0.001), ("1 in ten thousand", 1e-4), ("1 IN 10M", 1e-7), ("5 %", 0.05),
        (".5", 0.5), ("2 / 3", 2 / 3), ("1 in a hundred", 0.01), ("3 in 1,000", 0.003), ("2", 2.0),
    ],
)  # fmt: skip
def test_rates(text: str, value: float) -> None:
    assert parse_rate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4G", 2**32), ("256M", 2**28), ("512KiB", 2**19), ("512kib", 2**19), ("1.5GB", 1_500_000_000),
        ("1TB", 10**12), ("1TiB", 2**40), ("1000000", 10**6), ("1e6", 10**6), ("64 bytes", 64), ("64B", 64),
        ("0.5K", 512), ("1,024", 1024),
    ],
)  # fmt: skip
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize("parse", [parse_count, parse_number, parse_rate, parse_size])
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "x", "nan", "inf", "1e", "1e999", "--1", "1__0", "1,00", "0,1", "1,0000", "１", "1 2",
        "10M10", "5 dozen", "1/0", "1 in 0", "1/", "/1", "1 in", "1/2/3", "%", "1%%", "9" * 100, "0x10",
    ],
)  # fmt: skip
def test_what_is_no_number(parse, text: str) -> None:
    with pytest.raises(ValueError, match=r" is not a.*: write it as ") as caught:
        parse(text)
    assert repr(text)[:20] in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["1.5", "0.1%", "1/2", "1e-3"])
def test_a_count_is_whole(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number: write it as 200M, 1e9, 1_000_000 or 1,000,000"):
        parse_count(text)


def test_a_size_is_not_negative() -> None:
    with pytest.raises(ValueError, match="'-1' is not a size in bytes"):
        parse_size("-1")


@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_are_exact_in_every_form(number: int) -> None:
    for text in (str(number), f"{number:_}", f"{number:,}"):
        assert parse_count(text) == number
    assert parse_count(f"{number}k") == 1000 * number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_read_as_python_reads_them(number: float) -> None:
    assert parse_rate(repr(number)) == number
    assert parse_number(repr(number)) == number


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_fractions_and_percent_are_rounded_once(part: int, whole: int) -> None:
    assert parse_rate(f"{part}/{whole}") == parse_rate(f"{part} in {whole}") == float(Fraction(part, whole))
    assert parse_rate(f"{part}%") == float(Fraction(part, 100))
