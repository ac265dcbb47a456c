"""What a layer mask costs: the KL-style divergence of q' from q that DIMR minimises (VIA-SD eq. 7-12, App.
F).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from ..errors import SettingsError

FLOOR = -30.0  # log-probabilities below are clamped, so that an underflow costs a finite amount
Phi = Callable[[Tensor], Tensor]


def hinge(z: Tensor) -> Tensor:
    """The paper's choice, ReLU."""
    return relu(z)


def squared_hinge(z: Tensor) -> Tensor:
    return relu(z) ** 2


def huber_hinge(kappa: float = 1.0) -> Phi:
    """0 below 0, z^2 / (2 kappa) up to kappa, z - kappa / 2 beyond."""
    return lambda z: torch.where(z <= kappa, relu(z) ** 2 / (2 * kappa), z - kappa / 2)


def soft_hinge(tau: float = 1.0) -> Phi:
    """tau log(1 + e^(z / tau)): at least ReLU, at most tau log 2 above it (F.8)."""
    return lambda z: tau * softplus(z / tau)


def power_hinge(power: float = 1.5) -> Phi:
    return lambda z: relu(z) ** power


def exponential_hinge(tau: float = 1.0) -> Phi:
    return lambda z: relu(torch.expm1(z / tau))


PHIS: dict[str, Phi] = {
    "hinge": hinge,
    "squared": squared_hinge,
    "huber": huber_hinge(),
    "soft": soft_hinge(),
    "power": power_hinge(),
    "exponential": exponential_hinge(),
}


@dataclass(frozen=True)
class CostSettings:
    """alpha and beta of eq. 8-9, with beta >= 1 - alpha (App. A); the paper states neither. Raises
    SettingsError.
    """

    alpha: float = 0.5
    beta: float = 0.5
    phi: Phi = hinge

    def as_dict(self) -> dict[str, float | str]:
        """Plain values, for mask files and logs."""
        name = next((name for name, phi in PHIS.items() if phi is self.phi), "custom")
        return {"alpha": self.alpha, "beta": self.beta, "phi": name}

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise SettingsError(f"the cost's alpha is {self.alpha:g}; give a number from 0 to below 1")
        if self.beta < 1 - self.alpha - 1e-12:
            raise SettingsError(
                f"the cost's beta is {self.beta:g}; it must be at least 1 - alpha = {1 - self.alpha:g}"
            )


def floored_log_probs(logits: Tensor) -> Tensor:
    """Raw log-probabilities, float32 (float64 kept), clamped at FLOOR."""
    return (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1).clamp_min(FLOOR)


def divergence(log_q: Tensor, log_p: Tensor, settings: CostSettings | None = None) -> Tensor:
    """R(q || p) of eq. 9/11 per position, nats, [n], from log-probabilities [n, V] of verifier q and drafter
    p.

    E_p[phi(log((1 - alpha) p / q))] + E_q[phi(log(beta p / q))]; for DIMR p is q' under the mask.
    """
    settings = settings or CostSettings()
    gap = log_p - log_q
    over = settings.phi(math.log(1 - settings.alpha) + gap) * log_p.exp()
    under = settings.phi(math.log(settings.beta) + gap) * log_q.exp()
    return over.sum(-1) + under.sum(-1)


def segment_cost(log_q: Tensor, log_p: Tensor, settings: CostSettings | None = None) -> Tensor:
    """C(q || p) of eq. 10/12: the sum of the divergence over positions, a scalar."""
    return divergence(log_q, log_p, settings).sum()


def insertion_gain(
    log_p: Tensor, log_u: Tensor, log_q: Tensor, settings: CostSettings | None = None
) -> Tensor:
    """Delta(u | pi) of eq. 7: above 0 a tier u between p and q pays, below 0 it does not."""
    whole = segment_cost(log_q, log_p, settings)
    return whole - segment_cost(log_u, log_p, settings) - segment_cost(log_q, log_u, settings)


def rejection_rate(p: Tensor, q: Tensor, alpha: float) -> Tensor:
    """True rejection probability of rule (A.2) per position: sum_v max(0, p - q / (1 - alpha))."""
    return (p - q / (1 - alpha)).clamp_min(0).sum(-1)


def rejection_rate_eq1(p: Tensor, q: Tensor, alpha: float) -> Tensor:
    """Eq. 1 as printed, sum_v max(0, q - (1 - alpha) p): equals alpha + (1 - alpha) times the true rate."""
    return (q - (1 - alpha) * p).clamp_min(0).sum(-1)
