"""The pictures of README and docs, each a function that gives a `Picture`; draw_pictures.py writes them.

canvas.py     shapes, colours, text: SVG without a library
overview.py   the README's: three structures
filters.py  tables.py  summaries.py  rings.py  sketches.py    those of docs/explain
"""
