"""The Bayesian step of DIMR: a Gaussian process over masks and the mask of largest expected improvement.

scikit-optimize's regressor with its Hamming kernel (one length scale) models the logarithm of the cost: costs
of masks of one size spread over orders of magnitude, and only the small ones matter. The single-skip scores
are its first observations; how cost grows with their sum is the process's mean, which the Hamming distance
between a mask of one layer and one of many could not carry.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from skopt.acquisition import gaussian_ei
from skopt.learning import GaussianProcessRegressor
from skopt.learning.gaussian_process.kernels import ConstantKernel, HammingKernel

from .space import Space

POOL = 200  # random masks in the pool, beside the neighbours of the best ones
PARENTS = 3  # best masks whose neighbours are in the pool
JITTER = 1e-6  # costs are exact: only numerical noise


class Surrogate:
    """Fitted to all costs seen: `probes` of single units and `seen` masks of the space."""

    def __init__(self, space: Space, probes: Mapping[int, float], seen: Mapping[str, float]) -> None:
        self.space, self.seen = space, seen
        costs = np.array(list(seen.values()))
        self.floor = max(float(np.median(costs)) * 1e-3, 1e-12)
        self.alone = np.array([probes.get(layer, 0.0) for layer in space.free])
        inputs, targets = space.features(seen), np.log(costs + self.floor)
        self.slope, self.offset = self._trend(inputs, targets)
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * HammingKernel(0.2, (1e-3, 5.0))
        self.process = GaussianProcessRegressor(kernel, alpha=JITTER, normalize_y=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length scale at its bound is an answer, not a failure
            self.process.fit(inputs, targets - self._mean(inputs))
        self.best = float(np.log(costs.min() + self.floor))

    def _sum(self, inputs: np.ndarray) -> np.ndarray:
        return np.log(inputs @ self.alone + self.floor)

    def _trend(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
        """Least squares of log cost on the log of the summed single-skip scores, never falling."""
        sums = self._sum(inputs)
        spread = float(((sums - sums.mean()) ** 2).sum())
        slope = float(((sums - sums.mean()) * (targets - targets.mean())).sum()) / spread if spread else 0.0
        slope = max(slope, 0.0)
        return slope, float(targets.mean() - slope * sums.mean())

    def _mean(self, inputs: np.ndarray) -> np.ndarray:
        return self.offset + self.slope * self._sum(inputs)

    def improvement(self, masks: Sequence[str]) -> np.ndarray:
        """Expected improvement of log cost over the best mask seen, one a mask."""
        inputs = self.space.features(masks)
        process, mean = self.process, self._mean(inputs)

        class Shifted:
            """The process with its mean put back, as the acquisition function reads it."""

            def predict(self, X: np.ndarray, return_std: bool) -> tuple[np.ndarray, np.ndarray]:
                found, deviation = process.predict(X, return_std=return_std)
                return found + mean, deviation

        return np.asarray(gaussian_ei(inputs, Shifted(), y_opt=self.best, xi=0.0))


def propose(
    space: Space, probes: Mapping[int, float], seen: Mapping[str, float], random: np.random.Generator
) -> str:
    """The unseen mask of largest expected improvement among random ones and the neighbours of the best."""
    surrogate = Surrogate(space, probes, seen)
    ranked = sorted(seen, key=lambda mask: seen[mask])[:PARENTS]
    pool = [mask for parent in ranked for mask in space.neighbours(parent)]
    if probes:
        light = space.without(sorted(probes, key=lambda layer: probes[layer])[: space.chosen])
        pool += [light, *space.neighbours(light)]
    pool += [space.unseen(random, seen), *(space.random(random) for _ in range(POOL))]
    unseen = [mask for mask in dict.fromkeys(pool) if mask not in seen]
    return unseen[int(surrogate.improvement(unseen).argmax())]
