"""How numbers travel between host and device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from toys import toy_pair
from viasd_core.decode import generate
from viasd_core.settings import Settings
from viasd_core.transfer import to_device, to_host


def test_a_packed_copy_brings_back_every_number_exactly() -> None:
    ids = torch.tensor([0, 49_151, 2**24 + 1])
    probs = torch.tensor([[0.1, 0.7], [1e-30, 1.0]])
    host = to_host(ids=ids, probs=probs, flag=torch.tensor(True))
    assert host["ids"] == [0, 49_151, 2**24 + 1]
    assert torch.equal(torch.tensor(host["probs"]), probs.flatten())
    assert host["flag"] == [1.0]


def test_ids_and_marks_keep_their_kind_on_the_device() -> None:
    assert to_device([3, 0], torch.device("cpu")).dtype == torch.long
    assert to_device([True, False], torch.device("cpu")).dtype == torch.bool
    assert to_device([], torch.device("cpu")).shape == (0,)


@pytest.mark.parametrize("tracing", [True, False])
@pytest.mark.parametrize("method", ["ar", "sd", "via-sd"])
def test_a_metric_adds_no_copy_at_most_one_a_verifier_forward(
    method: str, tracing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sglang #11441: reading a number for the trace must not cost a synchronisation of its own."""
    copies = 0
    plain = torch.Tensor.cpu

    def counting(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        nonlocal copies
        copies += 1
        return plain(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "cpu", counting)
    via: dict[str, Any] = {"mask": "even", "skip_ratio": 0.3} if method == "via-sd" else {}
    settings = Settings(method=method, max_new_tokens=40, trace=tracing, **via)
    cycles = [event.cycle for event in generate(toy_pair(), list(range(20, 40)), settings)]
    forwards = sum(row.slim_forwards + row.full_forwards + row.settle_forwards for row in cycles)
    assert 0 < copies <= forwards


def test_phases_of_a_cycle_never_overlap() -> None:
    """The end settle is a verifier forward: it counts as `full`, and not a second time as `commit`."""
    settings = Settings(method="via-sd", mask="even", skip_ratio=0.3, max_new_tokens=40, debt_cap=0)
    for event in generate(toy_pair(), list(range(20, 40)), settings):
        phases = event.cycle.phase_us
        if event.cycle.settle_forwards:
            assert phases["full"] > phases["commit"]
