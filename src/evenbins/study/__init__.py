"""To understand and to reproduce: the papers' experiments, the web lab, the demo, simulations, traces.

    papers/      the experiments of the papers (`evenbins reproduce`)     lab/    the pages of `evenbins lab`
    demo/        `evenbins demo` and its report                           commands/    those commands
    simulate     cache servers behind a ring, replayed         traces    the requests that are replayed
    llm          replicas that cache prefixes, replayed        inspection  a structure, for people
    forwarding   how look-ups without a map behave in time     stepwise  a readable multilevel table
    marked_nodes a model of servers with forwarding marks      ring      rings as the papers have them
    hashing      filters with two or three hashes              levels    balanced filters by explicit numbers
    theory/      mathematics that no planner uses

No structure imports anything from here when it is imported; a filter of a research hashing scheme asks
`theory.hashing_law` for its rate.
"""
