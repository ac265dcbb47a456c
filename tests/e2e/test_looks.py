from __future__ import annotations

import json
from collections.abc import Callable

import plotly.offline
from playwright.sync_api import expect

from page_driver import Tab
from page_toys import HOSTILE

OpenTab = Callable[..., Tab]


def test_a_hostile_prompt_is_inert_in_a_live_run(open_tab: OpenTab) -> None:
    """Model text ran as code in templates and markup (gradio PR 13299, FastChat 88)."""
    tab = open_tab()
    tab.prompt(HOSTILE)
    tab.start(24)
    tab.stopped()
    expect(tab.page.locator(".viasd .prompt")).to_contain_text("<img src=x onerror=")
    assert tab.page.evaluate("window.__pwned") is None
    expect(tab.page.locator(".viasd img, .viasd script")).to_have_count(0)


def test_a_hostile_prompt_that_is_refused_is_inert_in_the_notice(open_tab: OpenTab) -> None:
    tab = open_tab()
    prompt = tab.page.locator("#viasd-prompt textarea")
    prompt.evaluate("area => area.removeAttribute('maxlength')")
    prompt.fill(HOSTILE * 300)
    tab.press("run")
    expect(tab.page.locator("#viasd-notice .viasd-notice")).to_contain_text("characters")
    assert tab.page.evaluate("window.__pwned") is None


def test_hostile_tokens_and_titles_are_inert_in_a_recorded_run(open_tab: OpenTab) -> None:
    tab = open_tab(charts=True)
    tab.choose("example", "hostile")
    tab.wait("shown.text.includes('onerror')")
    tab.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    tab.page.locator(".viasd .js-plotly-plot").first.wait_for()
    for token in tab.page.locator(".viasd .tokens .t").all()[:2]:
        token.click()
    assert tab.page.evaluate("window.__pwned") is None
    expect(tab.page.locator(".viasd img, .viasd script, #viasd-example img")).to_have_count(0)


def test_charts_are_drawn_with_the_installed_plotly_and_have_height(open_tab: OpenTab) -> None:
    """A second bundled plotly.js drew figures wrongly, and hidden plots had no height (10475, 13539)."""
    tab = open_tab(charts=True)
    tab.wait("shown.tokens === 11")
    plot = tab.page.locator(".viasd .js-plotly-plot").first
    tab.page.mouse.wheel(0, 4000)
    tab.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    plot.wait_for()
    box = plot.bounding_box()
    assert box is not None and box["height"] > 200
    version = tab.page.evaluate("window.Plotly.version")
    assert version in plotly.offline.get_plotlyjs()[:200]


def test_a_phone_shows_the_run_first_and_the_settings_on_request(open_tab: OpenTab) -> None:
    tab = open_tab(390, 844)
    tab.wait("shown.tokens === 11")
    tab.button("run").click(trial=True)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    tab.page.locator(".toggle-button").first.click()
    expect(tab.page.locator("#viasd-alpha1 input[type=range]")).to_be_in_viewport()


def test_nothing_of_a_run_is_kept_in_the_browser_behind_the_users_back(open_tab: OpenTab) -> None:
    """Gradio's run history stores prompts and outputs in the browser by default."""
    tab = open_tab()
    tab.prompt("zebra the")
    tab.start(16)
    tab.stopped()
    kept = tab.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert "zebra" not in kept, json.loads(kept)


def test_every_control_has_a_name_for_screen_readers(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.advanced()
    nameless = tab.page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea')]
        .filter((node) => node.offsetParent !== null && !node.disabled)
        .filter((node) => !(node.ariaLabel || node.textContent.trim() || node.title || node.labels?.length
                            || node.getAttribute('aria-labelledby') || node.placeholder))
        .map((node) => node.outerHTML.slice(0, 120))"""
    )
    assert nameless == []


def test_the_sliders_of_repair_trees_stand_on_the_form_with_cure_alone(open_tab: OpenTab) -> None:
    tab = open_tab()
    names = ("tau_margin", "margin_scale", "v_max", "b_max", "max_positions")
    sliders = [tab.page.locator(f"#viasd-{name} input[type=range]") for name in names]
    for slider in sliders:
        expect(slider).to_be_hidden()
    tab.choose("method", "CURE")
    for slider in sliders:
        expect(slider).to_be_enabled()
    tab.choose("method", "SD (two tiers, lossless)")
    for slider in sliders:
        expect(slider).to_be_hidden()
