// Puts the viewer together inside the component's element and connects it to the page.

import { App } from "./app.js";
import { Receiver } from "./wire.js";
import { Player } from "./replay.js";
import { Strip } from "./strip.js";
import { Transport } from "./transport.js";
import { TokenView } from "./tokens.js";
import { Legend } from "./legend.js";
import { Card } from "./card.js";
import { Keys } from "./keys.js";
import { CyclePanel } from "./cycle.js";
import { Inspector } from "./inspector.js";
import { Numbers } from "./numbers.js";
import { Charts } from "./charts.js";
import { TreePanel } from "./tree.js";
import { FilesMenu } from "./files_menu.js";
import { Status, stateOf } from "./status.js";
import { DrafterCheck } from "./drafter_check.js";
import { bundleFiles, bundleZip } from "./bundle.js";
import { DimrSection } from "./dimr_section.js";
import { followTheme, followWidth } from "./surroundings.js";
import { TIERS } from "./words.js";
import { h } from "./dom.js";

export function mount(env) {
  const root = env.element.querySelector(".viasd");
  const app = new App(env, root);
  const receiver = new Receiver(app, env.server);
  const views = build(app, env.props);
  app.views.unshift(...Object.values(views));
  expose(app, receiver, views);
  followTheme(app);
  followWidth(app);
  app.views.push({sync: () => app.root.classList.toggle("patterns", app.options.patterns)});
  followPending(app);
  if (env.watch) env.watch("value", () => receiver.receive(env.props.value));
  app.touch("run", "data", "head", "status", "cursor", "options");
  receiver.receive(env.props.value);
  env.trigger("viewer_ready", {});
}

function build(app, props) {
  const player = new Player(app);
  const url = typeof props.plotly_url === "string" ? props.plotly_url : "";
  const tokens = new TokenView(app);
  const views = {
    status: new Status(app),
    check: new DrafterCheck(app),
    player,
    strip: new Strip(app, player),
    transport: new Transport(app, player),
    inspector: new Inspector(app), // before the text, which moves out of its way
    tokens,
    legend: new Legend(app),
    cycle: new CyclePanel(app),
    numbers: new Numbers(app),
    tree: new TreePanel(app, tokens),
    charts: new Charts(app, player, url),
    dimr: new DimrSection(app, url),
    files: new FilesMenu(app),
    card: new Card(app, tokens),
    keys: new Keys(app, tokens),
  };
  place(app, views);
  return views;
}

function place(app, views) {
  views.status.node.append(views.check.agreement);
  const head = h("header.head", {}, views.status.node, views.files.node);
  const scrub = h("div.scrub", {}, views.strip.node, views.transport.node);
  const detail = h("div.detail", {}, views.inspector.node, views.cycle.node);
  const tabs = figureTabs(app, views);
  app.root.replaceChildren(head, views.status.error, views.check.warning, views.numbers.tiles, scrub, views.legend.node, h("div.main", {}, views.tokens.node, detail), tabs, views.dimr.node, views.card.node);
}

// Panels side by side; behind tabs where there is no room for them. One that has nothing to show has no tab.
function figureTabs(app, views) {
  const panels = {Numbers: views.numbers.node, Charts: views.charts.node, "Repair tree": views.tree.node};
  const names = Object.keys(panels);
  const buttons = names.map((name) => h("button.tab", {type: "button", role: "tab", onclick: () => choose(name)}, name));
  const box = h("div.figures", {}, h("div.tabs", {role: "tablist", "aria-label": "Figures"}, buttons), h("div.figure-panels", {}, Object.values(panels)));
  let chosen = "";
  const choose = (name) => {
    chosen = name;
    names.forEach((other, index) => {
      buttons[index].setAttribute("aria-selected", String(other === name));
      panels[other].classList.toggle("behind", other !== name);
    });
  };
  choose("Numbers");
  app.root.addEventListener("viasd:tree", () => choose("Repair tree"));
  const showTabs = () => {
    names.forEach((name, index) => (buttons[index].hidden = panels[name].hidden));
    if (panels[chosen].hidden) choose("Numbers");
  };
  app.views.push({sync: showTabs});
  return box;
}

function followPending(app) {
  window.addEventListener("viasd:pending", (event) => {
    if (!app.store.live || !event.detail || typeof event.detail !== "object") return;
    Object.assign(app.store.pending, event.detail);
    app.touch("pending");
  });
}

// A window onto the viewer's state, for tests and for the curious; reading it changes nothing.
function expose(app, receiver, views) {
  const {stats} = app;
  const getters = {
    run: () => app.store.id,
    live: () => app.store.live,
    replay: () => app.store.replay,
    seq: () => receiver.last.get(app.store.id) ?? 0,
    running: () => ["running", "paused", "stopping", "loading"].includes(stateOf(app.store)) && !app.store.ended,
    state: () => stateOf(app.store),
    tokens: () => app.store.out.size,
    painted: () => views.tokens.spans.length,
    cycles: () => app.store.cycles.length,
    counts: () => Object.fromEntries(TIERS.map(({code, verdict}) => [code, app.store.counts[verdict]])),
    text: () => app.store.text(),
    head: () => app.headIndex,
    cursor: () => {
      const row = app.row === null ? null : app.store.tokens[app.row];
      return {cycle: app.store.cycles[app.focusCycle]?.cycle ?? null, pos: row ? row.place : null, pinned: app.pinned};
    },
    pending: () => ({...app.store.pending}),
    error: () => app.error,
    lastPaint: () => stats.lastPaint,
    latencies: () => stats.latencies,
    messages: () => stats.messages,
    duplicates: () => stats.duplicates,
    gaps: () => stats.gaps,
    longest: () => stats.longest,
  };
  const shown = {ready: true, exportFiles: () => bundleFiles(app.store), exportZip: () => bundleZip(app.store), importFiles: (files) => views.files.chosen(files)};
  for (const [name, get] of Object.entries(getters)) Object.defineProperty(shown, name, {get, enumerable: true});
  window.__viasd = shown;
}
