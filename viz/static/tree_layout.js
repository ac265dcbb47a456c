// Where the nodes of a draft tree stand: x = depth, the draft on line 0, every repair branch on the next free
// line. Branches that start deeper come first, and one that forks again takes a line below all others, so that
// no edge crosses another branch.

export const MOST_NODES = 600; // drawn; a budget is below a hundred, a file may say anything

// Rows of one cycle -> {places: [{row, parent, depth, line, first}], depth, lines, left}. `parent` is the index
// of the parent's place (-1: the anchor), depth counts from 1, `first` marks the first node of a repair branch,
// `left` counts rows that do not hang on the anchor, come twice, or exceed MOST_NODES.
export function layoutTree(rows) {
  const places = reachable(rows);
  const runs = runsOf(places);
  const lines = []; // {runs on it, edges that come down across it}
  const waiting = runs.filter((run) => run.above === null).sort(deepestFirst).reverse();
  while (waiting.length) {
    const run = waiting.pop();
    run.line = run.isDraft ? 0 : freeLine(lines, run);
    occupy(lines, run);
    for (const index of run.members) places[index].line = run.line;
    waiting.push(...run.below.sort(deepestFirst).reverse());
  }
  const most = (field) => places.reduce((found, place) => Math.max(found, place[field]), 0);
  return {places, depth: most("depth"), lines: places.length ? most("line") + 1 : 0, left: rows.length - places.length};
}

// Parents before children, whatever the order of the rows; ids that come twice count once.
function reachable(rows) {
  const children = new Map();
  const seen = new Set();
  for (const row of [...rows].sort((one, two) => one.node - two.node)) {
    if (seen.has(row.node)) continue;
    seen.add(row.node);
    if (!children.has(row.parent)) children.set(row.parent, []);
    children.get(row.parent).push(row);
  }
  const places = [];
  const add = (id, parent, depth) => {
    for (const row of children.get(id) || []) {
      if (places.length < MOST_NODES) places.push({row, parent, depth, line: 0, first: row.branch > 0 && row.branch !== places[parent]?.row.branch});
    }
    children.delete(id);
  };
  add(-1, -1, 1);
  for (let index = 0; index < places.length; index += 1) {
    if (places[index].row.node !== -1) add(places[index].row.node, index, places[index].depth + 1);
  }
  return places;
}

// Stretches of one branch, parent to first child; a place that does not carry its parent on starts another.
function runsOf(places) {
  const carried = new Set();
  const runOf = [];
  const runs = [];
  places.forEach((place, index) => {
    const branch = place.parent < 0 ? 0 : places[place.parent].row.branch;
    const goesOn = place.row.branch === branch && !carried.has(place.parent);
    if (goesOn) carried.add(place.parent);
    if (goesOn && place.parent >= 0) {
      const run = runOf[place.parent];
      run.members.push(index);
      run.to = place.depth;
      runOf[index] = run;
      return;
    }
    const above = place.parent < 0 ? null : runOf[place.parent];
    const run = {members: [index], parent: place.parent, from: place.depth, to: place.depth, branch: place.row.branch, isDraft: goesOn, above, below: [], line: 0, number: runs.length};
    if (above) above.below.push(run);
    runOf[index] = run;
    runs.push(run);
  });
  return runs;
}

function deepestFirst(one, two) {
  return Number(two.isDraft) - Number(one.isDraft) || two.from - one.from || one.branch - two.branch || one.number - two.number;
}

function freeLine(lines, run) {
  const under = (run.above?.line ?? 0) + 1;
  let line = run.below.length ? Math.max(under, lines.length) : under;
  while (lines[line] && !fits(lines[line], run)) line += 1;
  return line;
}

// A run also needs the column before it, where its edge comes down, and no other edge may come down through it.
function fits({runs, edges}, {from, to, parent}) {
  return runs.every((other) => other.from - 1 > to || from - 1 > other.to)
    && edges.every((edge) => edge.parent === parent || edge.from < from || edge.from > to);
}

function occupy(lines, run) {
  for (let line = lines.length; line <= run.line; line += 1) lines.push({runs: [], edges: []});
  lines[run.line].runs.push(run);
  for (let line = (run.above?.line ?? 0) + 1; line < run.line; line += 1) lines[line].edges.push(run);
}
