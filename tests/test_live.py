"""The channel of the sliders: versions, checks, and a shared memory that is never read half-written."""

from __future__ import annotations

import multiprocessing
import struct
import threading
from collections.abc import Callable

import pytest

from viasd_core.errors import SettingsError
from viasd_core.live import KNOB_NAMES, Carrier, Knobs, LiveSettings, LocalCarrier, SharedCarrier, knobs_of
from viasd_core.settings import Settings

BOTH = pytest.mark.parametrize("carrier", [LocalCarrier, SharedCarrier])
CURE = (1.0, None, 90, 5, 1)  # tau_margin, margin_scale, v_max, b_max, max_positions of fast_margin100
FORK = multiprocessing.get_context("fork")


@BOTH
def test_a_snapshot_starts_with_the_settings_and_version_zero(carrier: Callable[[], Carrier]) -> None:
    settings = Settings(alpha1=0.61, alpha2=0.17, gamma=9, skip_ratio=0.35, temperature=0.85, mask="even")
    assert LiveSettings(settings, carrier()).snapshot() == Knobs(0, 0.61, 0.17, 9, 0.35, 0.85, *CURE, "even")


@BOTH
def test_every_update_raises_the_version_by_one_and_keeps_the_other_knobs(
    carrier: Callable[[], Carrier],
) -> None:
    live = LiveSettings(Settings(), carrier())
    assert [live.update(gamma=7), live.update(alpha1=0.9, alpha2=0.1)] == [1, 2]
    assert live.snapshot() == Knobs(2, 0.9, 0.1, 7, 0.45, 0.0, *CURE, "auto")


@BOTH
@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"gamma": 0}, "gamma is 0"),
        ({"alpha1": 1.5}, "alpha1 is 1.5"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"gamma": 2.5}, "gamma is 2.5"),
        ({"top_k": 3}, "top_k cannot change during a run; live: alpha1, alpha2, gamma"),
        ({"gamma": 2, "gate": "literal"}, "gate cannot change during a run"),
    ],
)
def test_a_bad_update_is_refused_whole(
    carrier: Callable[[], Carrier], changes: dict[str, float], part: str
) -> None:
    live = LiveSettings(Settings(), carrier())
    with pytest.raises(SettingsError) as refused:
        live.update(**changes)
    assert part in str(refused.value)
    assert live.snapshot() == knobs_of(Settings())


def test_a_snapshot_taken_earlier_does_not_change_under_the_cycle() -> None:
    live = LiveSettings(Settings())
    taken = live.snapshot()
    live.update(gamma=9)
    assert taken.gamma == 5


def test_updates_from_many_threads_are_all_counted() -> None:
    live = LiveSettings(Settings())
    threads = [
        threading.Thread(target=lambda: [live.update(gamma=1 + step % 9) for step in range(100)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.snapshot().version == 400


def test_a_read_during_a_write_waits_for_the_end_of_it() -> None:
    """The sequence counter is odd while a write is under way."""
    carrier = SharedCarrier()
    carrier.write(knobs_of(Settings()))
    memory = carrier._memory
    struct.pack_into("<Q", memory, 0, 3)
    read: list[Knobs] = []
    reader = threading.Thread(target=lambda: read.append(carrier.read()))
    reader.start()
    reader.join(0.05)
    assert reader.is_alive() and read == []
    struct.pack_into("<Q", memory, 0, 4)
    reader.join(20)
    assert read == [knobs_of(Settings())]


def _write_equal_pairs(live: LiveSettings, rounds: int) -> None:
    for step in range(rounds):
        share = (step % 97) / 100
        live.update(alpha1=share, alpha2=share, gamma=1 + step % 60, skip_ratio=(step % 60) / 100)


def test_a_forked_writer_is_never_seen_half_way() -> None:
    """Values that only ever change together arrive together."""
    live = LiveSettings(Settings(alpha1=0.0, alpha2=0.0, gamma=1, skip_ratio=0.0), SharedCarrier())
    writer = FORK.Process(target=_write_equal_pairs, args=(live, 3000))
    writer.start()
    versions = set()
    while writer.is_alive() or live.snapshot().version not in versions:
        knobs = live.snapshot()
        versions.add(knobs.version)
        assert knobs.alpha1 == knobs.alpha2
        assert round(knobs.skip_ratio * 100) == knobs.gamma - 1
    writer.join()
    assert writer.exitcode == 0
    assert live.snapshot().version == 3000


def test_a_local_carrier_is_not_shared_with_a_fork_and_a_shared_one_is() -> None:
    for carrier, expected in ((LocalCarrier(), 0), (SharedCarrier(), 5)):
        live = LiveSettings(Settings(), carrier)
        writer = FORK.Process(target=_write_equal_pairs, args=(live, 5))
        writer.start()
        writer.join()
        assert live.snapshot().version == expected


def test_the_live_knobs_are_those_of_the_gate_of_the_repairs_and_the_mask() -> None:
    assert KNOB_NAMES[:5] == ("alpha1", "alpha2", "gamma", "skip_ratio", "temperature")
    assert KNOB_NAMES[5:] == ("tau_margin", "margin_scale", "v_max", "b_max", "max_positions", "mask")


@BOTH
def test_a_margin_scale_follows_tau_margin_until_it_is_given(carrier: Callable[[], Carrier]) -> None:
    live = LiveSettings(Settings(method="cure"), carrier())
    live.update(tau_margin=0.5, v_max=32)
    assert live.snapshot().margin_scale is None
    live.update(margin_scale=0.25, b_max=3, max_positions=2)
    assert live.snapshot() == Knobs(2, 0.5, 0.3, 5, 0.45, 0.0, 0.5, 0.25, 32, 3, 2, "auto")


def test_a_mask_choice_that_does_not_fit_into_shared_memory_is_refused_and_changes_nothing() -> None:
    live = LiveSettings(Settings(), SharedCarrier())
    with pytest.raises(SettingsError, match="takes 513 bytes, 512 fit"):
        live.update(mask="1" * 513)
    assert live.snapshot() == knobs_of(Settings())
    live.update(mask="1" * 512)
    assert live.snapshot().mask == "1" * 512
