"""The registries of kinds: the core's and the package's name the same kinds by the same numbers."""

from __future__ import annotations

from evenbins import _core
from evenbins.structure import KINDS


def test_core_and_package_have_the_same_kinds() -> None:
    ours = {kind.number: kind.name for kind in KINDS if kind.number}
    assert _core.kinds() == ours
