"""Hash tables that move at most one key per insertion.

multilevel   MultilevelTable   a bucket per level, and an overflow list
chained      ChainedTable      short chains
paged        PagedTable        the multilevel table on disk: one read per look-up
summaries    which level a key is in, in few bits
mapping      what the tables share: the methods of a dict, bulk calls
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.tables.chained import ChainedTable, ChainPlan, ChainStats, plan_chains, plan_of_chain_core
    from evenbins.tables.multilevel import (
        MultilevelTable,
        TableFullError,
        TablePlan,
        TableStats,
        plan_multilevel,
        plan_of_table_core,
    )
    from evenbins.tables.paged import PagedPlan, PagedStats, PagedTable, plan_of_paged_core, plan_paged

__all__ = [
    "ChainPlan", "ChainStats", "ChainedTable", "MultilevelTable", "PagedPlan", "PagedStats", "PagedTable",
    "TableFullError", "TablePlan", "TableStats", "plan_chains", "plan_multilevel", "plan_of_chain_core",
    "plan_of_paged_core", "plan_of_table_core", "plan_paged",
]  # fmt: skip

_HOMES = {
    "chained": "ChainedTable ChainPlan ChainStats plan_chains plan_of_chain_core",
    "multilevel": "MultilevelTable TableFullError TablePlan TableStats plan_multilevel plan_of_table_core",
    "paged": "PagedPlan PagedStats PagedTable plan_of_paged_core plan_paged",
}

__getattr__ = lazy_names(globals(), _HOMES)
