from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from page.server import Page
from page_driver import Tab
from page_toys import until

Served = tuple[Page, str]
OpenTab = Callable[..., Tab]


def test_two_people_keep_their_own_settings_prompt_and_text(open_tab: OpenTab, site: Served) -> None:
    """One user's state leaked into another's (gradio 9983, 4558, 3824)."""
    mine, theirs = open_tab(), open_tab()
    mine.prompt("mine the and")
    mine.number("gamma", 2)
    theirs.prompt("theirs over there")
    mine.start(24)
    mine.stopped()
    theirs.start(24)
    theirs.stopped()
    runs = [site[0].sessions.find(tab.report()["run"]) for tab in (mine, theirs)]
    assert runs[0] is not None and runs[1] is not None
    assert [run.trace.run["prompt"] for run in runs if run] == ["mine the and", "theirs over there"]
    assert [run.trace.cycles[0].gamma for run in runs if run] == [2, 5]
    for tab, other in ((mine, "theirs over"), (theirs, "mine the")):
        assert other not in tab.page.content()
        expect(tab.page.locator("#viasd-gamma input[type=number]")).to_have_value("2" if tab is mine else "5")
    late = open_tab()
    assert "mine the" not in late.page.content() and "theirs over" not in late.page.content()


def test_a_slider_of_one_person_does_not_turn_the_run_of_another(open_tab: OpenTab, site: Served) -> None:
    mine, theirs = open_tab(), open_tab()
    mine.start()
    theirs.number("gamma", 1)
    cycles = mine.report()["cycles"]
    mine.wait(f"shown.cycles > {cycles + 3}")
    run = site[0].sessions.find(mine.report()["run"])
    assert run is not None and {row.gamma for row in run.trace.cycles} == {5}


def test_the_second_person_waits_sees_the_place_and_gets_the_slot(open_tab: OpenTab) -> None:
    mine, theirs = open_tab(), open_tab()
    mine.start()
    mine.press("pause")
    mine.wait("shown.state === 'paused'")
    theirs.choose("method", "SD (two tiers")
    theirs.number("max_new_tokens", 16)
    theirs.press("run")
    theirs.wait("shown.state === 'queued'")
    expect(theirs.page.locator(".viasd")).to_contain_text("place 1 in the queue")
    mine.press("stop")
    theirs.wait("shown.state === 'done' && shown.tokens === 16")


def test_a_queued_run_that_is_stopped_leaves_the_queue(open_tab: OpenTab, site: Served) -> None:
    """Cancelling a queued run left it in the queue (gradio 13323)."""
    mine, theirs = open_tab(), open_tab()
    mine.start()
    mine.press("pause")
    theirs.press("run")
    theirs.wait("shown.state === 'queued'")
    theirs.press("stop")
    theirs.wait("shown.state === 'stopped'")
    assert site[0].engine.waiting() == 0
    mine.press("stop")


def test_closing_a_tab_in_mid_run_frees_the_slot(open_tab: OpenTab, site: Served) -> None:
    """Generation went on after the tab was closed (gradio 4016)."""
    tab = open_tab()
    tab.start()
    tab.page.close()
    until(lambda: site[0].engine.idle)


def test_closing_a_tab_while_paused_frees_the_slot(open_tab: OpenTab, site: Served) -> None:
    tab = open_tab()
    tab.start()
    tab.press("pause")
    tab.wait("shown.state === 'paused'")
    run = tab.report()["run"]
    tab.page.close()
    until(lambda: site[0].engine.idle)
    until(lambda: site[0].sessions.find(run) is None)


def test_a_reload_ends_the_run_of_the_old_tab(open_tab: OpenTab, site: Served) -> None:
    tab = open_tab()
    tab.start()
    tab.page.reload()
    tab.wait("shown.ready && shown.tokens === 11")
    until(lambda: site[0].engine.idle)


def test_strict_with_a_temperature_is_refused_beside_the_form(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.wait("shown.tokens === 11")
    beside_form = tab.page.locator("#viasd-form-notice .viasd-notice")
    tab.advanced()
    tab.number("temperature", 0.7)
    tab.page.locator("#viasd-strict input").check()
    expect(beside_form).to_contain_text("strict needs temperature 0")
    expect(beside_form).to_be_in_viewport()
    tab.press("run")
    expect(tab.page.locator("#viasd-notice")).to_contain_text("strict needs temperature 0")
    assert tab.report()["tokens"] == 11, "the recorded run stays on screen"
    tab.number("temperature", 0)
    expect(beside_form).to_be_empty()


def test_options_a_method_does_not_use_are_disabled_and_say_why(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.advanced()
    tab.choose("method", "AR (full")
    for name in ("alpha1", "gamma", "skip_ratio"):
        expect(tab.page.locator(f"#viasd-{name} input[type=range]")).to_be_disabled()
        expect(tab.page.locator(f"#viasd-{name}")).to_contain_text("not used by ar")
    expect(tab.page.locator("#viasd-drafter")).to_contain_text("nothing is drafted")
    expect(tab.page.locator("#viasd-temperature input[type=range]")).to_be_enabled()
    tab.choose("method", "VIA-SD")
    expect(tab.page.locator("#viasd-alpha1 input[type=range]")).to_be_enabled()
    expect(tab.page.locator("#viasd-alpha1")).not_to_contain_text("not used")


def test_choosing_another_pair_brings_its_settings_and_prompt(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.choose("preset", "qwen2.5-coder")
    expect(tab.page.locator("#viasd-skip_ratio input[type=number]")).to_have_value("0.36")
    expect(tab.page.locator("#viasd-prompt textarea")).not_to_have_value("")
    expect(tab.page.locator("#viasd-drafter input")).to_have_value("a small model (own)")


def test_a_drafter_that_only_another_pairs_menu_holds_can_be_run(open_tab: OpenTab, site: Served) -> None:
    tab = open_tab()
    tab.choose("preset", "qwen3")
    expect(tab.page.locator("#viasd-drafter input")).to_have_value("a small model (own)")
    tab.choose("drafter", "prompt lookup")
    tab.start(16)
    tab.stopped()
    run = site[0].sessions.find(tab.report()["run"])
    assert run is not None and run.job is not None
    assert (run.state, run.job.pair.drafter) == ("done", "lookup")


def test_buttons_that_act_on_a_run_are_off_without_one(open_tab: OpenTab) -> None:
    tab = open_tab()
    acting = [tab.button(name) for name in ("pause", "step", "stop")]
    for _ in range(2):
        for button in acting:
            expect(button).to_be_disabled()
        tab.start()
        for button in acting:
            expect(button).to_be_enabled()
        tab.press("pause")
        expect(tab.button("pause")).to_have_text("Resume")
        tab.press("stop")
        tab.stopped()
    for button in acting:
        expect(button).to_be_disabled()
    expect(tab.button("pause")).to_have_text("Pause")


def test_buttons_are_off_again_when_a_run_ends_by_itself_or_cannot_start(open_tab: OpenTab) -> None:
    tab = open_tab()
    acting = [tab.button(name) for name in ("pause", "step", "stop")]
    tab.prompt("")
    tab.press("run")
    expect(tab.page.locator("#viasd-notice")).to_contain_text("the prompt is empty")
    for button in acting:
        expect(button).to_be_disabled()
    tab.prompt("the and")
    tab.start(16)
    tab.stopped()
    for button in acting:
        expect(button).to_be_disabled()


def test_a_run_that_cannot_start_says_why_in_place(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.run()
    tab.wait("shown.state === 'error'")
    expect(tab.page.locator(".viasd")).to_contain_text("no searched mask is stored for toy")


def test_opening_a_recorded_run_in_mid_run_leaves_the_run_going(open_tab: OpenTab, site: Served) -> None:
    tab = open_tab()
    tab.start()
    live = site[0].sessions.find(tab.report()["run"])
    tab.choose("example", "four cycles")
    tab.wait("shown.tokens === 11")
    assert live is not None and not live.ended
    tab.press("stop")
    until(lambda: live.ended)
    assert tab.report()["tokens"] == 11
