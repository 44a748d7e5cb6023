"""Adapters: what other packages ask for, made of our structures.

    scrapy.DupeFilter           requests seen before, for a crawler: DUPEFILTER_CLASS (docs/dedup.md)
    huggingface.first_rows      rows to keep, for `datasets.Dataset.filter` with any num_proc

Each module imports the package that it is for; one that is missing is named with the extra that brings it.
"""
