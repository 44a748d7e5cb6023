"""Mathematics that the papers' experiments and pages use, and no planner: bounds, limits, checks.

balance           Theorem 2, Figure 4 and the equations of Kanizo, Hay and Keslassy
asymptotic        false-positive rates by the formulas of textbooks
hashing_law       two or three hash functions: rates and their causes; less_hashing: the theorems
hashing_schemes   a scheme of your own, checked
multilevel        multilevel tables and their summaries: rebuilds, crises, bounds
tables            multilevel tables of equal levels, and of many sizes
counters          the thesis' bound on counters; the worst stream of a count-min sketch
rings             the theorems on rings with bounded loads
"""
