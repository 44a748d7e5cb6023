"""The best number of hashes of a two-choice filter, tabulated: where one more becomes better.

At a load, keys per block, the rate of a two-choice filter falls with the hashes and then rises again; with
fewer keys per block the best number grows. So one number for each k says it all: the load at which k and
k + 1 hashes have the same rate. Both goals ask the same question there: the least rate for a memory is read
off by load, the least memory for a rate by the rate at these points.

Each would otherwise take the equations of `two_choices` for three or four numbers of hashes. A test computes
the table anew. Ties, on the points themselves, go to fewer hashes.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

__all__ = ["best_hashes_at_load", "best_hashes_for_rate", "load_for_rate", "rate_at_load"]

_LOADS = {
    256: (
        224.62, 105.52, 65.606, 47.19, 36.85, 30.197, 25.53, 22.08, 19.449, 17.365, 15.66, 14.263, 13.068,
        12.028, 10.91, 10.334, 9.6224, 8.9825, 8.404, 7.875, 7.3975, 6.9675, 6.513, 5.7125, 5.2502, 5.0823,
        4.9691, 4.7442, 4.4611, 4.1815, 3.9085,
    ),
    512: (
        447.91, 211.75, 135.07, 97.089, 75.76, 62.088, 52.491, 45.431, 40.005, 35.712, 32.19, 29.399,
        27.014, 24.979, 22.951, 21.684, 20.343, 19.196, 17.638, 17.027, 16.206, 15.423, 14.717, 13.779,
        12.934, 12.594, 12.175, 11.677, 11.224, 10.733, 10.309,
    ),
}  # fmt: skip
"""By block_bits, keys per block at which k and k + 1 hashes have the same rate, k = 1, 2, …."""
_RATES = {
    256: (
        0.71628, 0.3989, 0.19353, 0.092212, 0.044511, 0.021643, 0.010531, 0.0051238, 0.0025076, 0.0012276,
        0.00059716, 0.00029268, 0.0001418, 6.7635e-05, 2.6569e-05, 1.5309e-05, 7.1281e-06, 3.2835e-06,
        1.498e-06, 6.7415e-07, 3.0373e-07, 1.3802e-07, 5.5283e-08, 8.8956e-09, 2.6982e-09, 1.6936e-09,
        1.22e-09, 6.156e-10, 2.4772e-10, 9.4475e-11, 3.4482e-11,
    ),
    512: (
        0.7155, 0.40069, 0.20317, 0.096931, 0.046693, 0.022693, 0.011029, 0.0053826, 0.0026293, 0.0012849,
        0.00062232, 0.0003106, 0.00015342, 7.5696e-05, 3.3223e-05, 1.8403e-05, 9.0932e-06, 4.6072e-06,
        1.609e-06, 1.0148e-06, 5.1619e-07, 2.5443e-07, 1.2664e-07, 4.5526e-08, 1.6329e-08, 1.0457e-08,
        5.8358e-09, 2.7835e-09, 1.3526e-09, 5.848e-10, 2.6935e-10,
    ),
}  # fmt: skip
"""The rates there."""


def best_hashes_at_load(block_bits: int, load: float) -> int:
    """Return the number of hashes of least rate at `load` keys per block."""
    return 1 + bisect_left([-each for each in _LOADS[block_bits]], -load)


def best_hashes_for_rate(block_bits: int, fpr: float) -> int:
    """Return the number of hashes of least memory for a rate."""
    return 1 + bisect_left([-each for each in _RATES[block_bits]], -fpr)


def load_for_rate(block_bits: int, fpr: float) -> float:
    """Estimate the keys per block at which the best number of hashes has this rate: within a few per cent."""
    loads, rates = _LOADS[block_bits], _RATES[block_bits]
    if fpr >= rates[0]:  # one hash
        return -0.5 * block_bits * math.log1p(-fpr)
    if fpr <= rates[-1]:  # as many as there can be: about a power of the load
        return loads[-1] * float((fpr / rates[-1]) ** (1.0 / 24.0))
    logs = np.interp(-math.log(fpr), -np.log(rates), np.log(loads))
    return math.exp(float(logs))


def rate_at_load(block_bits: int, load: float) -> float:
    """Estimate the rate of the best number of hashes at `load` keys per block, within some ten per cent."""
    loads, rates = _LOADS[block_bits], _RATES[block_bits]
    if load <= loads[-1]:
        return rates[-1] * float((load / loads[-1]) ** 24.0)
    logs = np.interp(-load, [-each for each in loads], np.log(rates))
    return math.exp(float(logs))
