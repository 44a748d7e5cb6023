"""Adapters: what other packages ask for, made of our structures.

    scrapy.DupeFilter           requests seen before, for a crawler: DUPEFILTER_CLASS (docs/dedup.md)
    huggingface.first_rows      rows to keep, for `datasets.Dataset.filter` with any num_proc
    uhashring.HashRing          the API and placement of the package uhashring, with bounds (docs/rings.md)

The first two import the package that they are for; one that is missing is named with its extra.
"""
