"""What a filter must be able to do, and which kinds can: by the registry of kinds.

    needs ──▶ capabilities, as `structure.KINDS` names them ──▶ the policies of the kinds that have them all

A kind that is made for one need (removal, windows, fixed sets) takes more memory or can do less than the
others, so it is proposed only where that need is named; fingerprint filters, from which keys can be removed,
also where the size is unknown, since they grow by themselves. A kind that is registered later is found
without a change here.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenbins import _arguments as arguments
from evenbins.structure import Kind, kind_of_policy, that_can

__all__ = ["NEEDS", "capabilities_of", "listed", "policies_for"]

_SYNONYMS = {"deletions": "remove", "unknown-size": "grow", "shared": "redis"}
_NEAREST = {
    "on-disk": "the file of any filter, which evenbins.open maps without reading it whole: leave the need "
    "out; or a PagedTable, which holds the keys exactly and reads one page per look-up",
}
NEEDS = ("merge", "remove", "grow", "shard", "redis", "dask", "fixed-set", "window", *_NEAREST)
"""What can be needed, as the registry names it."""
_SPECIAL = frozenset(
    {"remove", "fixed-set", "window", *_NEAREST}
)  # kinds with one of these are proposed only where it is needed
_BY_OR = ("standard", "blocked", "fill", "two-choice")


def listed(needs: str | Sequence[str]) -> list[str]:
    """Return needs as a list: one of them may be given by itself."""
    return [needs] if isinstance(needs, str) else list(needs) if isinstance(needs, Sequence) else [""]


def capabilities_of(needs: str | Sequence[str]) -> frozenset[str]:
    """Return the needs as the registry names them.

    Examples
    --------
    >>> sorted(capabilities_of(["deletions", "fixed set"])), sorted(capabilities_of("window"))
    (['fixed-set', 'remove'], ['window'])
    """
    names = [str(need).replace(" ", "-") for need in listed(needs)]
    found = frozenset(_SYNONYMS.get(name, name) for name in names)
    if not found <= set(NEEDS):
        accepted = [name.replace("-", " ") for name in (*NEEDS, *_SYNONYMS)]
        rule = f"one or a list of {', '.join(accepted)}"
        raise arguments.error("needs", rule, needs, "Leave it out if the filter is only filled and asked")
    return found


def policies_for(needs: str | Sequence[str], policies: Sequence[str] | None) -> list[str]:
    """Return the policies that can do what is needed, of those that are wanted."""
    needed = capabilities_of(needs)
    kinds = [kind for kind in that_can("design") if kind.policies]
    known = [policy for kind in kinds for policy in kind.policies]
    if policies is not None and (isinstance(policies, str) or not set(policies) <= set(known)):
        rule = f"a list of some of {', '.join(known)}"
        raise arguments.error("policies", rule, policies, "Leave it out for all")
    for need in sorted(needed & set(_NEAREST)):
        if not any(need in kind.can for kind in kinds):
            raise arguments.unmet(
                "needs",
                f' has "{need.replace("-", " ")}", and no kind of filter can do that. The nearest is '
                f"{_NEAREST[need]}",
            )
    able = [kind for kind in kinds if needed <= kind.can]
    if policies is None:
        special = _SPECIAL - {"remove"} if "grow" in needed else _SPECIAL
        wanted = [policy for kind in able if not special & kind.can - needed for policy in kind.policies]
    else:
        wanted = [policy for policy in policies if kind_of_policy(policy) in able]
    if "merge" in needed:
        wanted = [policy for policy in wanted if policy in _BY_OR or "remove" in needed]
    if not wanted:
        parts = "; ".join(f"{need}: {', '.join(_names(need, kinds))}" for need in sorted(needed))
        remedy = f"Ask for less, or leave policies out. By need: {parts}"
        raise arguments.error("needs", "met by one of the policies", needs, remedy)
    return wanted


def _names(need: str, kinds: Sequence[Kind]) -> list[str]:
    return [kind.name for kind in kinds if need in kind.can]
