"""Hash tables that move at most one key per insertion.

multilevel   MultilevelTable   a bucket per level, and an overflow list
chained      ChainedTable      short chains
paged        PagedTable        the multilevel table on disk: one read per look-up
summaries    which level a key is in, in few bits
mapping      what the tables share: the methods of a dict, bulk calls (with views, equality, inference)
exact_sets   a multilevel table without values
*_plan       plans and planners of multilevel, paged and summaries
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.tables.chained import ChainedTable, ChainPlan, ChainStats, plan_chains
    from evenbins.tables.exact_sets import digest_words
    from evenbins.tables.multilevel import MultilevelTable, TableFullError, TableStats
    from evenbins.tables.multilevel_plan import TablePlan, plan_multilevel
    from evenbins.tables.paged import PagedStats, PagedTable
    from evenbins.tables.paged_plan import PagedPlan, plan_paged

__all__ = [
    "ChainPlan", "ChainStats", "ChainedTable", "MultilevelTable", "PagedPlan", "PagedStats", "PagedTable",
    "TableFullError", "TablePlan", "TableStats", "digest_words", "plan_chains", "plan_multilevel",
    "plan_paged",
]  # fmt: skip

_HOMES = {
    "exact_sets": "digest_words",
    "chained": "ChainedTable ChainPlan ChainStats plan_chains",
    "multilevel": "MultilevelTable TableFullError TableStats",
    "multilevel_plan": "TablePlan plan_multilevel",
    "paged": "PagedStats PagedTable",
    "paged_plan": "PagedPlan plan_paged",
}

__getattr__ = lazy_names(globals(), _HOMES)
