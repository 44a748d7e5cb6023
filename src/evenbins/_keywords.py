"""Constructors that are called with another library's argument names: the TypeError names ours.

    BloomFilter(1000, error_rate=0.01)  ──▶  TypeError: … 'error_rate'. Use fpr=

`HINTS` is the only list of such names. A hint applies where the constructor has the argument it leads to, so
one list serves filters, sketches and tables.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["HINTS", "check_call", "check_names", "explain_keywords"]

_P = ParamSpec("_P")
_S = TypeVar("_S")

_OURS: dict[str, str] = {
    "precision": "p b num_registers",  # before fpr: only a HyperLogLog has it
    "capacity first initial_capacity": (
        "n capacity expected_items expected_elements expected_insertions expected_keys est_elements "
        "estimated_elements max_elements max_items max_keys num_elements num_items elements items keys "
        "initial_capacity"
    ),
    "fpr epsilon error": (
        "error_rate error fpp fp_rate fp_prob false_positive_rate false_positive_probability p prob "
        "probability"
    ),
    "hashes": "hash_count num_hashes number_of_hashes n_hashes hash_functions num_hash_functions k",
    "bits_per_key capacity": "m bits num_bits n_bits size bit_size array_size filter_size",
    "epsilon": "eps width w",
    "delta": "depth d confidence",
    "seed": "salt random_state random_seed",
}
_NOTES = {
    ("bits", "bits_per_key"): ", the bits divided by the number of keys",
    ("width", "epsilon"): ", about e / width",
    ("depth", "delta"): ", about exp(-depth)",
    ("confidence", "delta"): ", which is 1 - confidence",
    ("registers", "precision"): ", the binary logarithm of the number of registers",
}
_SHORT = {"m": "bits", "size": "bits", "w": "width", "d": "depth"}

HINTS: dict[str, tuple[str, ...]] = {}
"""For each name that other libraries use, the arguments of ours that may be meant, likeliest first."""
for _names, _theirs in _OURS.items():
    for _each in _theirs.split():
        HINTS[_each] = HINTS.get(_each, ()) + tuple(_names.split())


def explain_keywords(
    method: Callable[Concatenate[_S, _P], None],
) -> Callable[Concatenate[_S, _P], None]:
    """Return `__init__` with errors that name the argument to use; `check_call` has the messages."""
    signature = inspect.signature(method)

    @wraps(method)
    def checked(self: _S, /, *args: _P.args, **options: _P.kwargs) -> None:
        try:
            method(self, *args, **options)
        except TypeError:
            check_call(type(self).__name__, signature, (self, *args), options)
            raise

    return checked


def check_call(name: str, signature: inspect.Signature, args: Any, options: Mapping[str, object]) -> None:
    """Raise a TypeError that explains itself if a call does not fit the signature; else return.

    Examples
    --------
    >>> from evenbins import BloomFilter
    >>> BloomFilter(1000, error_rate=0.01)
    Traceback (most recent call last):
    TypeError: BloomFilter() got an unexpected keyword argument 'error_rate'. Use fpr=
    """
    check_names(name, signature, options)
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        positional = [each for each in _named(signature) if each.kind is not each.KEYWORD_ONLY]
        order = ", ".join(each.name for each in positional)
        raise TypeError(f"{name}(): {error}. The positional arguments are {order}") from None


def check_names(name: str, signature: inspect.Signature, options: Mapping[str, object]) -> None:
    """Raise a TypeError for the first option that the signature does not have, with the name to use."""
    known = [each.name for each in _named(signature)]
    if any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        return
    for word in options:
        if word not in known:
            text = f"{name}() got an unexpected keyword argument {word!r}. {_hint(word, known)}"
            raise TypeError(text) from None


def _named(signature: inspect.Signature) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each for each in signature.parameters.values() if each.kind in kinds and each.name != "self"]


def _hint(word: str, known: list[str]) -> str:
    name = word.lower()
    meant = next((each for each in HINTS.get(name, ()) if each in known), None)
    if meant is not None:
        long = _SHORT.get(name, name)
        note = (text for (part, ours), text in _NOTES.items() if part in long and ours == meant)
        return f"Use {meant}={next(note, '')}"
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"Did you mean {close[0]}=?"
    return f"Its arguments are {', '.join(known)}"
