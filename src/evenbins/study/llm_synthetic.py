"""Conversations drawn at random, for `replay_llm` where there is no trace.

    first request ── pause ──▶ second: the first, its answer, a question more ── pause ──▶ …

Conversations begin at a constant rate, independently. All prompts begin with the same blocks (a system
prompt). A turn adds a number of blocks; numbers of turns and of blocks are geometric, pauses exponential. So
lengths differ by a factor of a hundred, and the next request comes when other conversations have used the
caches. What it leaves out that real traffic has: hours of the day, users who are busier than others,
documents that several conversations share.
"""

from __future__ import annotations

import heapq
import math
import random

from evenbins._arguments import integer, real
from evenbins._arguments import seed as checked_seed
from evenbins.study.llm import LlmRequest

__all__ = ["synthetic_requests"]

_BLOCK_TOKENS = 512
_ANSWER_TOKENS = 300


def synthetic_requests(
    *, requests: int, per_second: float, turns: float = 3.0, turn_blocks: float = 8.0,
    shared_blocks: int = 1, pause: float = 60.0, seed: int = 0,
) -> list[LlmRequest]:  # fmt: skip
    """Draw requests in the order of their times; the blocks have 512 tokens.

    Parameters
    ----------
    requests
        How many.
    per_second
        Their mean rate, once conversations end as often as they begin.
    turns, turn_blocks
        Means: requests of a conversation, and blocks that each adds to the prompt.
    shared_blocks
        First blocks that all prompts have in common.
    pause
        Mean seconds between two requests of a conversation.
    seed
        Of all randomness.

    Raises
    ------
    ValueError
        If there is no such mean or number; TypeError if it is none.

    Examples
    --------
    >>> first, *others = synthetic_requests(requests=100, per_second=5, seed=1)
    >>> first.blocks[0], len(others), {each.blocks[0] for each in others}
    (0, 99, {0})
    """
    requests = integer("requests", requests, 1, 10**7, "Pass how many to draw")
    per_second = real("per_second", per_second, "", "Pass for example 4", above=0, most=1e6)
    turns = real("turns", turns, "", "Pass for example 3", least=1, most=1e4)
    turn_blocks = real("turn_blocks", turn_blocks, "", "Pass for example 8", least=1, most=1e4)
    shared_blocks = integer("shared_blocks", shared_blocks, 0, 10**4, "Pass for example 1")
    pause = real("pause", pause, "", "Pass for example 60", least=0, most=1e9)
    rng = random.Random(checked_seed(seed))
    found: list[LlmRequest] = []
    begun, number = 0.0, shared_blocks
    later: list[float] = []  # times that are yet to come when a conversation begins
    while len(found) - len(later) < requests:  # nothing that is drawn from here on comes before these
        begun += rng.expovariate(per_second / turns)
        while later and later[0] <= begun:
            heapq.heappop(later)
        seconds, blocks = begun, [*range(shared_blocks)]
        for _ in range(_geometric(rng, turns)):
            more = _geometric(rng, turn_blocks)
            blocks.extend(range(number, number + more))
            number += more
            tokens = _BLOCK_TOKENS * len(blocks) - rng.randrange(_BLOCK_TOKENS)
            found.append(LlmRequest(seconds, tokens, _geometric(rng, _ANSWER_TOKENS), tuple(blocks)))
            if seconds > begun:
                heapq.heappush(later, seconds)
            seconds += rng.expovariate(1 / pause) if pause else 0.0
    found.sort(key=lambda each: each.seconds)  # of equal times in the order in which they were drawn
    return found[:requests]


def _geometric(rng: random.Random, mean: float) -> int:
    """Draw a number from 1 on."""
    return 1 if mean == 1 else 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / mean))
