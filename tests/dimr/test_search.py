"""The search for a mask: the paper's rule (eq. 13), its invariants D1 to D7, cancelling and resuming."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dimr.dimr_toys import Planted, evaluations_needed, made, run, separable, with_pairs
from viasd_core.dimr import search as search_module
from viasd_core.dimr.log import SearchLog
from viasd_core.dimr.masks import inside, parse_bits
from viasd_core.dimr.search import KINDS, Observation, Search, SearchSettings
from viasd_core.dimr.space import Space
from viasd_core.dimr.surrogate import Surrogate, propose
from viasd_core.errors import DataError, MaskError, SettingsError
from viasd_core.trace import Trace
from viasd_core.trace_check_cycles import masks_hold

SPACE = Space(12, 4)
COST = with_pairs(12, 3)


def masks(seen: list[Observation]) -> list[Observation]:
    """Those of the wanted size."""
    return [one for one in seen if one.step is not None]


@pytest.mark.parametrize("kind", KINDS)
def test_every_mask_skips_exactly_n_layers_and_keeps_the_ends(kind: str) -> None:
    """D1."""
    seen = masks(run(made(SPACE, COST, kind=kind, steps=40, theta=5)))
    assert {one.mask.count("0") for one in seen} == {4}
    assert {one.mask[0] + one.mask[-1] for one in seen} == {"11"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_mask_of_sub_layers_skips_exactly_n_halves_and_keeps_the_ends(kind: str) -> None:
    """D1 for sub-layers."""
    space = Space(7, 5, granularity="sublayer")
    assert space.free == tuple(range(2, 12)) and space.size == 252
    seen = masks(run(made(space, with_pairs(14, 3), kind=kind, steps=30, theta=5)))
    assert {(len(one.mask), one.mask.count("0")) for one in seen} == {(14, 5)}
    assert {one.mask[:2] + one.mask[-2:] for one in seen} == {"1111"}
    assert len({one.mask for one in seen}) == len(seen)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("granularity", ["layer", "sublayer"])
def test_every_mask_lies_inside_the_stronger_tiers(kind: str, granularity: str) -> None:
    strong = parse_bits("1101110111", 10)
    space = Space.of(0.5, 10, granularity=granularity, inside=strong)
    seen = masks(run(made(space, with_pairs(space.units, 3), kind=kind, steps=20, theta=5)))
    assert {one.mask.count("0") for one in seen} == {space.units // 2}
    assert all(inside(parse_bits(one.mask, 10), strong) for one in seen)


def test_a_search_over_layers_inside_a_mask_of_halves_is_refused() -> None:
    with pytest.raises(MaskError, match="--granularity sublayer"):
        Space.of(0.5, 6, inside=parse_bits("111011111111", 6))
    assert Space.of(0.5, 6, inside=parse_bits("111100111111", 6)).gone == (2,)


def test_a_stronger_tier_that_skips_as_much_leaves_nothing_to_search() -> None:
    with pytest.raises(SettingsError, match="0 of the 3 layers that may be skipped besides the 3"):
        Space.of(0.375, 8, inside=parse_bits("10001111", 8))


def test_the_ends_may_be_skipped_when_asked() -> None:
    seen = masks(run(made(Space(6, 3, ends=True), separable(6, 0), kind="random", steps=30)))
    assert {"0"} <= {one.mask[0] for one in seen} and {"0"} <= {one.mask[-1] for one in seen}


def test_the_even_mask_comes_first_and_a_bayesian_step_every_theta(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: at those steps and at no others the surrogate proposes, from all costs seen so far."""
    proposed: list[str] = []
    known: list[tuple[dict[int, float], dict[str, float]]] = []

    def watched(
        space: Space, probes: dict[int, float], seen: dict[str, float], random: np.random.Generator
    ) -> str:
        known.append((dict(probes), dict(seen)))
        proposed.append(propose(space, probes, seen, random))
        return proposed[-1]

    monkeypatch.setattr(search_module, "propose", watched)
    seen = masks(run(made(SPACE, COST, steps=21, theta=4)))
    assert (seen[0].method, seen[0].mask) == ("even", SPACE.even)
    assert [one.step for one in seen] == list(range(22))
    assert [one.mask for one in seen if one.method == "bo"] == proposed
    assert [one.step for one in seen if one.method == "bo"] == [4, 8, 12, 16, 20]
    singles = {layer: COST(SPACE.without([layer])) for layer in SPACE.free}
    assert known == [(singles, {one.mask: one.cost for one in seen[:end]}) for end in (4, 8, 12, 16, 20)]
    plain = masks(run(made(SPACE, COST, kind="random", steps=21, theta=4)))
    assert {one.method for one in plain} == {"even", "random"} and len(proposed) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_cost_never_rises_and_is_the_least_so_far(kind: str) -> None:
    """D3."""
    search = made(SPACE, COST, kind=kind, steps=40, theta=5)
    seen = masks(run(search))
    least = [min(one.cost for one in seen[: end + 1]) for end in range(len(seen))]
    assert [one.best_cost for one in seen] == least
    assert [one.accepted for one in seen] == [
        one.cost < before for one, before in zip(seen, [99, *least[:-1]], strict=True)
    ]
    assert search.best is not None and search.best.cost == least[-1] == COST(search.best.mask)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "space",
    [
        Space(7, 2),
        Space(8, 1),
        Space(5, 2, granularity="sublayer"),
        Space.of(0.25, 12, inside=parse_bits("110110111111", 12)),
        Space.of(0.5, 12, inside=parse_bits("110110101111", 12)),
    ],
    ids=["two", "one", "halves", "inside-by-one", "inside-by-three"],
)
def test_no_mask_is_evaluated_twice_and_none_after_all_were(space: Space, kind: str) -> None:
    """D4, in spaces so small that the search meets its end."""
    asked: list[str] = []
    planted = with_pairs(space.units, 3)

    def cost(mask: str) -> float:
        asked.append(mask)
        return planted(mask)

    search = made(space, cost, kind=kind, steps=500, theta=3)
    run(search)
    assert len(asked) == len(set(asked)) == search.evaluations == search.planned
    if kind != "greedy":
        assert sum(mask.count("0") == space.skipped for mask in asked) == space.size


@pytest.mark.parametrize("space", [Space(8, 1), Space(8, 2)])
def test_a_budget_smaller_than_the_space_is_planned_as_it_is_spent(space: Space) -> None:
    search = made(space, with_pairs(8, 3), steps=3, theta=2)
    singles = [one for one in run(search) if one.method == "single"]
    assert len(singles) == (6 if space.chosen > 1 else 0)
    assert search.evaluations == search.planned == len(singles) + 4


@pytest.mark.parametrize("kind", ["dimr", "random"])
def test_the_search_stops_after_its_steps_or_when_patience_ends(kind: str) -> None:
    """D5."""
    assert masks(run(made(SPACE, COST, kind=kind, steps=9, theta=5)))[-1].step == 9
    seen = masks(run(made(SPACE, COST, kind=kind, steps=150, patience=13, theta=5)))
    last_best = max(one.step or 0 for one in seen if one.accepted)
    assert seen[-1].step == last_best + 13 < 150


@pytest.mark.parametrize("kind", ["dimr", "random"])
def test_a_seed_decides_every_mask(kind: str) -> None:
    """D6."""
    first, again, other = (
        [one.mask for one in run(made(SPACE, COST, kind=kind, steps=25, theta=5, seed=seed))]
        for seed in (4, 4, 5)
    )
    assert first == again != other


@pytest.mark.parametrize("planted", [separable, with_pairs])
def test_bayesian_steps_find_the_planted_optimum_with_fewer_evaluations(planted: Planted) -> None:
    """D7: median over 10 seeds, the single-skip evaluations counted."""
    needed = {
        kind: [evaluations_needed(kind, planted, Space(14, 5), seed) for seed in range(10)]
        for kind in ("dimr", "random")
    }
    assert statistics.median(needed["dimr"]) < 0.5 * statistics.median(needed["random"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_a_search_stand_in_a_trace(kind: str) -> None:
    trace = Trace(run={"n_layers": 12})
    seen = masks(run(made(SPACE, COST, kind=kind, steps=12, theta=5)))
    trace.dimr = [one.row(20) for one in seen]
    assert list(masks_hold(trace)) == []
    assert [row.step for row in trace.dimr] == list(range(len(seen)))
    assert {row.tau for row in trace.dimr} == {20} and trace.dimr[0].accepted


def test_greedy_removes_the_layer_whose_loss_costs_least() -> None:
    search = made(SPACE, COST, kind="greedy")
    seen = run(search)
    gone: list[int] = []
    for _ in range(4):
        left = [layer for layer in SPACE.free if layer not in gone]
        gone.append(min(left, key=lambda layer: COST(SPACE.without([*gone, layer]))))
    assert search.best is not None and search.best.mask == SPACE.without(gone)
    assert len(seen) == 10 + 9 + 8 + 7
    assert [one.step for one in seen][-8:] == [None, *range(7)]


def test_single_skip_scores_are_made_first_and_are_never_the_best() -> None:
    seen = run(made(SPACE, COST, steps=3))
    assert [one.mask for one in seen[:10]] == [SPACE.without([layer]) for layer in SPACE.free]
    assert {one.method for one in seen[:10]} == {"single"}
    assert [one.best_cost for one in seen[:10]] == [None] * 10
    assert seen[10].best_cost == seen[10].cost


def test_the_surrogate_knows_what_it_has_seen_and_expects_nothing_from_it() -> None:
    seen = {one.mask: one.cost for one in masks(run(made(SPACE, COST, kind="random", steps=30)))}
    singles = {layer: COST(SPACE.without([layer])) for layer in SPACE.free}
    surrogate = Surrogate(SPACE, singles, seen)
    assert surrogate.improvement(list(seen)).max() < 1e-2
    best = min(seen, key=lambda mask: seen[mask])
    assert surrogate.improvement(SPACE.neighbours(best)).max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("killed_after", [3, 17])
def test_a_killed_search_goes_on_from_its_log_as_if_nothing_had_happened(
    kind: str, killed_after: int, tmp_path: Path
) -> None:
    settings = SearchSettings(kind=kind, steps=30, theta=5)
    whole = [(one.step, one.mask, one.cost, one.best_cost) for one in run(Search(SPACE, COST, settings))]
    log = SearchLog(tmp_path / "s.log.jsonl", {"model": "toy"})
    log.begin()
    run(Search(SPACE, COST, settings, heard=log.add), killed_after)
    with log.path.open("a") as file:
        file.write('{"step": 99, "met')  # a kill in the middle of a line
    past = log.resume()
    assert len(past) == killed_after
    asked: list[str] = []

    def cost(mask: str) -> float:
        asked.append(mask)
        return COST(mask)

    resumed = run(Search(SPACE, cost, settings, past=past, heard=log.add))
    assert [(one.step, one.mask, one.cost, one.best_cost) for one in resumed] == whole
    assert len(asked) == len(whole) - killed_after
    assert [one.t_us for one in resumed] == sorted(one.t_us for one in resumed)
    assert len(log.path.read_text().splitlines()) == 1 + len(whole)


@pytest.mark.parametrize("kind", KINDS)
def test_search_time_leaves_out_what_happens_between_two_masks(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the page, where a search waits behind decoding runs; also once it goes on from its log."""
    now_us = 0

    def cost(mask: str) -> float:
        nonlocal now_us
        now_us += 10
        return COST(mask)

    monkeypatch.setattr(search_module, "time", SimpleNamespace(perf_counter_ns=lambda: now_us * 1000))
    settings, past = SearchSettings(kind=kind, steps=4, theta=2), list[Observation]()
    for cut in (5, None):
        search = Search(SPACE, cost, settings, past=past)
        now_us += 5_000_000
        seen = []
        for one in search:
            now_us += 3_000_000
            seen.append(one)
            if len(seen) == cut:
                break
        past = seen
        assert [one.t_us for one in seen] == [10 * place for place in range(1, len(seen) + 1)]


def test_a_cancelled_search_has_its_best_mask() -> None:
    search = made(SPACE, COST, kind="random", steps=1000)
    seen = run(search, 12)
    assert search.best is not None and search.best.cost == min(one.cost for one in seen)


def test_a_log_is_never_continued_by_another_search_nor_silently_lost(tmp_path: Path) -> None:
    path = tmp_path / "s.log.jsonl"
    log = SearchLog(path, {"model": "toy", "search": {"seed": 1}})
    with pytest.raises(DataError, match=r"no log .* leave --resume out"):
        log.resume()
    log.begin()
    with pytest.raises(DataError, match="did not finish; give --resume"):
        log.begin()
    with pytest.raises(DataError, match="belongs to a search with another search;"):
        SearchLog(path, {"model": "toy", "search": {"seed": 2}}).resume()
    log.finish()
    log.begin()
    assert json.loads(path.read_text())["model"] == "toy"


@pytest.mark.parametrize("action", ["begin", "resume"])
def test_a_disk_that_is_full_while_a_log_is_written_anew_leaves_the_old_one(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SearchLog(tmp_path / "s.log.jsonl", {"model": "toy"})
    log.begin()
    run(Search(SPACE, COST, SearchSettings(steps=5), heard=log.add))
    log.finish()
    whole = log.path.read_text()

    def full(path: Path, text: str, **_: object) -> int:
        path.write_bytes(text.encode()[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        getattr(log, action)()
    assert log.path.read_text() == whole and list(tmp_path.iterdir()) == [log.path]


@pytest.mark.parametrize("content", ["not json\n", '{"schema": "other"}\n', "[1]\n", "\xff\n"])
def test_a_file_that_is_no_log_is_refused_and_left_alone(content: str, tmp_path: Path) -> None:
    path = tmp_path / "s.log.jsonl"
    path.write_text(content, encoding="latin-1")
    for action in (SearchLog(path, {}).begin, SearchLog(path, {}).resume):
        with pytest.raises(DataError, match="is not the log of a search"):
            action()
    assert path.read_text(encoding="latin-1") == content


def test_damaged_observations_are_refused(tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "s.log.jsonl", {})
    log.begin()
    with log.path.open("a") as file:
        file.write('{"step": 1, "colour": "red"}\n')
    with pytest.raises(DataError, match="is damaged; delete it"):
        log.resume()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"kind": "magic"}, "choose one of dimr, random, greedy"),
        ({"steps": 0}, "steps is 0"),
        ({"theta": 0}, "theta is 0"),
        ({"patience": -1}, "patience is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_search_settings_are_a_sentence(changes: dict[str, object], part: str) -> None:
    with pytest.raises(SettingsError, match=part):
        SearchSettings(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("layers", "skipped"), [(5, 0), (5, 3), (3, 1), (2, 0)])
def test_a_space_without_a_choice_is_refused(layers: int, skipped: int) -> None:
    with pytest.raises(SettingsError, match="leaves nothing to search"):
        Space(layers, skipped)
