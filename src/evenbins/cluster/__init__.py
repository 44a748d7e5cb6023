"""Beyond one process and one machine: engines that users already operate.

cluster.dask.build(collection, column, …)     a filter from many files or a Dask collection, by many workers

Importing this package needs none of their libraries; a call that needs one which is missing says which extra
brings it.
"""
