// Colours of a drawing surface, and the two figures as plotly JSON. No text of a model goes into a figure.

import { knobName, knobValue, TIERS, TIER_CLASS } from "./words.js";

const MOST_BARS = 250;
const FONT = "system-ui, sans-serif";

// What canvas and plotly need of the style sheet; canvas fills become patterns in patterns-only mode.
export function colours(app, context = null) {
  const style = getComputedStyle(app.root);
  const read = (name) => style.getPropertyValue(name).trim();
  const fills = {};
  TIERS.forEach((tier, index) => {
    const code = TIER_CLASS[tier.code];
    fills[code] = app.options.patterns && context ? hatch(context, index, read("--ink"), read("--panel")) : read(`--tier-${code}`);
  });
  return {ink: read("--ink"), muted: read("--muted"), line: read("--line"), panel: read("--panel"), accent: read("--accent"), repair: read("--repair"), fills};
}

// Six textures that stay apart without colour: light, lines one way, dark, lines both ways, dots, outline.
function hatch(context, index, ink, paper) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const paint = tile.getContext("2d");
  paint.fillStyle = index === 2 ? ink : paper;
  paint.fillRect(0, 0, 6, 6);
  paint.strokeStyle = paint.fillStyle = ink;
  if (index === 0) paint.globalAlpha = 0.25;
  if (index === 0) paint.fillRect(0, 0, 6, 6);
  if (index === 1 || index === 3) line(paint, 0, 6, 6, 0);
  if (index === 3) line(paint, 0, 0, 6, 6);
  if (index === 4) paint.fillRect(2, 2, 2, 2);
  if (index === 5) paint.fillRect(0, 0, 6, 1);
  return context.createPattern(tile, "repeat");
}

function line(paint, fromX, fromY, toX, toY) {
  paint.beginPath();
  paint.moveTo(fromX, fromY);
  paint.lineTo(toX, toY);
  paint.stroke();
}

// Text that plotly may show: it reads a part of HTML, and %{...} in templates.
export function inert(text) {
  return String(text).slice(0, 80).replace(/[<>&%{}]/g, (char) => `&#${char.charCodeAt(0)};`);
}

const SHAPES = {S: "", M: "/", F: "", R: "x", B: ".", T: "|"};

// {tokens: figure, share: figure}, or null without cycles.
export function runFigures(store, look, patterns) {
  const bins = binCycles(store);
  if (!bins.length) return null;
  const x = bins.map((bin) => bin.cycle);
  const used = TIERS.filter((tier) => bins.some((bin) => bin.counts[tier.verdict]));
  const bars = used.map((tier) => barTrace(tier, x, bins, look, patterns));
  const lines = used.map((tier) => shareTrace(tier, x, bins, look));
  const changes = store.events.filter((row) => row.type === "param_change").slice(-60);
  const common = {look, changes, last: x[x.length - 1]};
  const each = bins[0].cycles;
  return {
    tokens: {data: bars, layout: layoutOf({...common, title: each > 1 ? `tokens a cycle, mean of ${each}` : "tokens a cycle", extra: {barmode: "stack", bargap: x.length > 120 ? 0 : 0.15}})},
    share: {data: lines, layout: layoutOf({...common, title: "share of each tier so far", extra: {yaxis: {range: [0, 1], tickformat: ".0%"}}})},
  };
}

function binCycles(store) {
  const count = store.cycles.length;
  const each = Math.max(1, Math.ceil(count / MOST_BARS));
  const bins = [];
  const sofar = {};
  for (let from = 0; from < count; from += each) {
    const to = Math.min(count, from + each);
    const counts = {};
    const end = store.spans[to - 1][1];
    for (let index = store.spans[from][0]; index < end; index += 1) {
      const row = store.tokens[index];
      if (!row.emitted) continue;
      counts[row.verdict] = (counts[row.verdict] || 0) + 1;
      sofar[row.verdict] = (sofar[row.verdict] || 0) + 1;
    }
    bins.push({cycle: store.cycles[from].cycle, from, cycles: to - from, counts, sofar: {...sofar}});
  }
  return bins;
}

function barTrace(tier, x, bins, look, patterns) {
  const code = TIER_CLASS[tier.code];
  const marker = patterns
    ? {color: code === "F" ? look.ink : look.panel, line: {color: look.ink, width: 1}, pattern: {shape: SHAPES[code], fgcolor: look.ink, size: 5}}
    : {color: look.fills[code]};
  return {type: "bar", name: tier.name, x, y: bins.map((bin) => (bin.counts[tier.verdict] || 0) / bin.cycles), marker, hovertemplate: "%{y:.3~g}"};
}

const DASHES = {S: "solid", M: "dash", F: "solid", R: "dashdot", B: "dot", T: "longdash"};

function shareTrace(tier, x, bins, look) {
  const code = TIER_CLASS[tier.code];
  const y = bins.map((bin) => {
    const total = Object.values(bin.sofar).reduce((sum, value) => sum + value, 0);
    return total ? (bin.sofar[tier.verdict] || 0) / total : 0;
  });
  return {type: "scatter", mode: "lines", name: tier.name, x, y, line: {color: look.fills[code], width: code === "F" ? 3 : 2, dash: DASHES[code]}, hovertemplate: "%{y:.0%}"};
}

// What every figure's layout has in common; `xaxis` and `yaxis` are added to.
export function plainLayout(look, {xaxis, yaxis}) {
  const axis = {gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, automargin: true};
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: {family: FONT, size: 12, color: look.ink},
    showlegend: false,
    hoverlabel: {bgcolor: look.panel, font: {color: look.ink}},
    uirevision: "keep",
    xaxis: {...axis, ...xaxis},
    yaxis: {...axis, ...yaxis},
  };
}

function layoutOf({look, changes, last, title, extra}) {
  const xaxis = {title: {text: "cycle"}, rangemode: "tozero", ...(last < 8 ? {range: [-0.5, 8.5]} : {autorange: true})};
  const knobs = changes.map((row) => vertical(row.cycle, look.muted, "dot"));
  return {
    ...plainLayout(look, {xaxis, yaxis: extra.yaxis}),
    height: 230,
    margin: {l: 44, r: 12, t: 30, b: 36},
    title: {text: title, font: {size: 13}, x: 0, xanchor: "left", xref: "paper", y: 0.97},
    hovermode: "x unified",
    barmode: extra.barmode,
    bargap: extra.bargap,
    shapes: knobs,
    annotations: changes.slice(-6).map((row) => ({
      x: row.cycle, y: 1, yref: "paper", yanchor: "bottom", showarrow: false, font: {size: 10, color: look.muted}, text: inert(`${knobName(row.key)} ${knobValue(row.new)}`),
    })),
  };
}

export function vertical(cycle, color, dash) {
  return {type: "line", x0: cycle, x1: cycle, y0: 0, y1: 1, yref: "paper", line: {color, width: dash ? 1 : 2, dash: dash || "solid"}};
}
