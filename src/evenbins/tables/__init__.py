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
    from evenbins.tables.chained import ChainedTable, ChainStats
    from evenbins.tables.multilevel import MultilevelTable, TableFullError, TableStats
    from evenbins.tables.paged import PagedStats, PagedTable

__all__ = [
    "ChainStats",
    "ChainedTable",
    "MultilevelTable",
    "PagedStats",
    "PagedTable",
    "TableFullError",
    "TableStats",
]

_HOMES = {
    "chained": "ChainedTable ChainStats",
    "multilevel": "MultilevelTable TableFullError TableStats",
    "paged": "PagedStats PagedTable",
}

__getattr__ = lazy_names(globals(), _HOMES)
