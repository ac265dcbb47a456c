// The two figures of a layer-mask search as plotly JSON. Only numbers and words of this file go into them.

import { isNumber } from "./dom.js";
import { plainLayout, vertical } from "./figures.js";

const MOST_POINTS = 1500;

// Shape and fill tell the kinds apart, colour only helps.
const KINDS = [
  {method: "random", name: "random", symbol: "circle-open", size: 8, glyph: "○"},
  {method: "bo", name: "Bayesian", symbol: "diamond", size: 10, glyph: "◆"},
  {method: "greedy", name: "greedy removal", symbol: "triangle-down-open", size: 9, glyph: "▽"},
  {method: "even", name: "evenly spaced", symbol: "square", size: 10, glyph: "■"},
];

// Every scored mask, the best cost so far, and a ring around the shown one.
export function costFigure(search, look, shown) {
  const kept = thinned(search.points);
  const positive = search.points.every((point) => !Number.isFinite(point.cost) || point.cost > 0);
  const traces = KINDS.map((kind) => pointTrace(kind, kept.filter((index) => kindOf(search.points[index]) === kind.method), search, look)).filter((trace) => trace.x.length);
  return {
    data: [bestLine(search, look), ...traces, ring(shown === null ? null : search.points[shown], look, (point) => [point.step, point.cost])],
    layout: layoutOf(look, {
      xaxis: {title: {text: "step"}, rangemode: "tozero"},
      yaxis: {type: positive ? "log" : "linear", exponentformat: "power"},
    }),
  };
}

// [glyph, name] of what the plot holds.
export function legendOf(search) {
  const used = new Set(search.points.map(kindOf));
  const marks = KINDS.filter((kind) => used.has(kind.method)).map((kind) => [kind.glyph, kind.name]);
  return marks.length ? [...marks, ["━", "best so far"]] : [];
}

function kindOf({method}) {
  return KINDS.some((kind) => kind.method === method) ? method : "random";
}

// Indices of the points to draw: all, or the cheapest and dearest of each stretch and every new best.
function thinned(points) {
  const finite = points.map((_, index) => index).filter((index) => Number.isFinite(points[index].cost));
  if (finite.length <= MOST_POINTS) return finite;
  const each = Math.ceil((2 * finite.length) / MOST_POINTS);
  const chosen = new Set(finite.filter((index) => points[index].accepted).slice(-MOST_POINTS / 2));
  for (let from = 0; from < finite.length; from += each) {
    const stretch = finite.slice(from, from + each).sort((a, b) => points[a].cost - points[b].cost);
    chosen.add(stretch[0]).add(stretch.at(-1));
  }
  return [...chosen].sort((a, b) => a - b);
}

function pointTrace({name, symbol, size, method}, indices, search, look) {
  const points = indices.map((index) => search.points[index]);
  const color = method === "random" ? look.muted : method === "bo" ? look.accent : look.ink;
  return {
    type: "scatter",
    mode: "markers",
    name,
    x: points.map((point) => point.step),
    y: points.map((point) => point.cost),
    customdata: indices,
    marker: {symbol, size, color, line: {color, width: 1.5}},
    hovertemplate: `step %{x}, ${name}<br>%{y:.4~g} nats<extra></extra>`,
  };
}

function bestLine(search, look) {
  const rows = search.points.filter((point) => Number.isFinite(point.best_cost));
  const turns = rows.filter((point, index) => index === 0 || index === rows.length - 1 || point.best_cost !== rows[index - 1].best_cost);
  return {
    type: "scatter", mode: "lines", name: "best so far", x: turns.map((point) => point.step), y: turns.map((point) => point.best_cost),
    line: {color: look.ink, width: 2, shape: "hv"}, hoverinfo: "skip",
  };
}

function ring(point, look, place) {
  const [x, y] = point ? place(point) : [null, null];
  return {
    type: "scatter", mode: "markers", name: "shown mask", x: [x], y: [y], hoverinfo: "skip", showlegend: false,
    marker: {symbol: "circle-open", size: 18, color: look.repair, line: {color: look.repair, width: 3}},
  };
}

// Predicted speed, and the share of cycles that call q, over the skip ratio (the paper's Fig. 4).
export function curveFigure(curve, look, mask) {
  const shown = curve.points.find((point) => point.mask === mask) || null;
  const optimum = typeof curve.optimum === "number" ? [vertical(curve.optimum, look.accent, "dash")] : [];
  const even = {type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: {color: look.muted, width: 1.5, dash: "dot"}};
  return {
    data: [
      ...rejection(curve, look),
      {
        type: "scatter", mode: "lines+markers", name: "speed", customdata: curve.points.map((_, index) => index),
        x: curve.points.map((point) => point.skip_ratio), y: curve.points.map((point) => point.predicted.speed),
        line: {color: look.accent, width: 2}, marker: {size: 7, color: look.accent},
        hovertemplate: "skip %{x:.0%}: %{y:.2f} times the speed<extra></extra>",
      },
      ring(shown, look, (point) => [point.skip_ratio, point.predicted.speed]),
    ],
    layout: layoutOf(look, {
      xaxis: {title: {text: "skip ratio r"}, tickformat: ".0%", rangemode: "tozero"},
      yaxis: {title: {text: "speed, times"}, rangemode: "tozero"},
      yaxis2: {title: {text: "cycles that call q"}, tickformat: ".0%", range: [0, 1.05], tickmode: "linear", tick0: 0, dtick: 0.25, overlaying: "y", side: "right", showgrid: false},
      shapes: [even, ...optimum],
    }),
  };
}

// What stands for the paper's rejection: how often the full verifier is called. A file may lack the numbers.
function rejection(curve, look) {
  const shares = curve.points.map((point) => (isNumber(point.predicted.rho) ? point.predicted.rho : null));
  if (shares.every((share) => share === null)) return [];
  return [{
    type: "scatter", mode: "lines+markers", name: "cycles that call q", yaxis: "y2", customdata: curve.points.map((_, index) => index),
    x: curve.points.map((point) => point.skip_ratio), y: shares,
    line: {color: look.ink, width: 2, dash: "dash"}, marker: {symbol: "square-open", size: 8, color: look.ink},
    hovertemplate: "skip %{x:.0%}: q called in %{y:.0%} of cycles<extra></extra>",
  }];
}

// [glyph, name] of what the curve holds.
export function curveLegend(curve) {
  const speed = ["━●", "predicted speed (left)"];
  return curve.points.some((point) => isNumber(point.predicted.rho)) ? [speed, ["╌□", "cycles that call q (right)"]] : [speed];
}

function layoutOf(look, {xaxis, yaxis, yaxis2, shapes = []}) {
  const plain = plainLayout(look, {xaxis, yaxis});
  return {
    ...plain,
    ...(yaxis2 && {yaxis2: {...plain.yaxis, rangemode: "normal", ...yaxis2}}),
    height: 300,
    margin: {l: 50, r: 12, t: 10, b: 40},
    hovermode: "closest",
    dragmode: false,
    shapes,
  };
}
