"""Design by requirement: say what you need; get every design that meets it, best first, each ready to build.

filter(keys, fpr=…)         membership filters        `filters`
sharded_filter(keys, …)     the same in shards        `sharding`
table(keys, overflow=…)     hash tables               `tables`
summary(keys, …)            summaries of tables       `summaries`
ring(nodes, keys, …)        hash rings                `rings`
"""

from evenbins.design.filters import FilterDesign, FilterDesigns, GrowingDesign, filter
from evenbins.design.rings import RingDesign, RingDesigns, ring
from evenbins.design.sharding import ShardedDesign, ShardedDesigns, sharded_filter
from evenbins.design.summaries import SummaryDesign, SummaryDesigns, summary
from evenbins.design.tables import TableDesign, TableDesigns, table

__all__ = [
    "FilterDesign", "FilterDesigns", "GrowingDesign", "RingDesign", "RingDesigns", "ShardedDesign",
    "ShardedDesigns", "SummaryDesign", "SummaryDesigns", "TableDesign", "TableDesigns",
    "filter", "ring", "sharded_filter", "summary", "table",
]  # fmt: skip
