"""Every sequence once per epoch, each epoch in a new order.

Presentation ``p`` (the p-th sequence shown since training began) is sequence ``order[p % n]`` of epoch ``p // n``.
Optimiser step ``s`` takes presentations ``s * batch_size`` and up, so batches may cross epochs and none is short.
"""

import functools

import numpy as np

from lightning_modules.data.order.portions import Portions
from lightning_modules.draws import Draws, permutation


def presented(portions: Portions, step: int, count: int) -> Draws:
    """The sequences, of ``count``, that a step presents, and the keys of their noise."""
    size = portions.batch_size
    rows = np.arange(step * size, (step + 1) * size, dtype=np.int64)
    epoch, place = np.divmod(rows, count)
    sample = np.empty(size, dtype=np.int64)
    for number in np.unique(epoch).tolist():
        in_epoch = epoch == number
        sample[in_epoch] = _order(portions.seed, number, count)[place[in_epoch]]
    return Draws(seed=portions.seed, rows=rows, sample=sample, epoch=epoch)


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, size: int) -> np.ndarray:
    return permutation(seed, "order", epoch, size)
