// Where the segments of the tree stand: a row for each leaf, positions from left to right.

// How many of those that go next are told.
const toldVictims = 3;

// Where the pages of each group beside the first are in a segment: runs of its pages, [from, to).
class Held {
  constructor(hung) {
    this.hung = hung;
    this.runs = hung.map(() => []);
  }

  add(page, at) {
    this.hung.forEach(({over}, i) => {
      if (!over.has(page.number)) return;
      const last = this.runs[i].at(-1);
      if (last && last[1] === at) last[1] += 1;
      else this.runs[i].push([at, at + 1]);
    });
  }
}

// A segment is a run of pages that nothing leaves in the middle, one node of the cache, or several
// until it tells where they end.
function layOut(tree) {
  const segments = [];
  let rows = 0;
  let deepest = 1;
  const waiting = [];
  const visit = (pages, parent) => {
    for (const page of [...pages].reverse()) waiting.push([page, parent]);
  };
  for (const name of [...tree.spaces.keys()].reverse()) visit(tree.spaces.get(name), null);
  while (waiting.length > 0) {
    const [first, parent] = waiting.pop();
    let last = first;
    let count = 1;
    const held = new Held(tree.hung);
    held.add(first, 0);
    let followers = tree.followers.get(last.number);
    while (followers && followers.size === 1 && !tree.nodes.has(last.number)) {
      [last] = followers;
      held.add(last, count);
      count += 1;
      followers = tree.followers.get(last.number);
    }
    const segment = {
      first, last, count, parent,
      row: rows,
      begin: first.position,
      end: last.position + tree.pageSize,
      children: [],
      node: tree.nodes.get(last.number),
      held: held.runs,
      found: 0, computed: 0, turn: 0,
    };
    segments.push(segment);
    if (parent) parent.children.push(segment);
    deepest = Math.max(deepest, segment.end);
    if (followers) visit(followers, segment);
    else rows += 1;
  }
  markVictims(segments);
  const {groups, pageSize} = tree;
  return {segments, rows, deepest, groups, pageSize, byRow: inRows(segments, rows)};
}

// The segments of each row, from left to right.
function inRows(segments, rows) {
  const byRow = Array.from({length: rows}, () => []);
  for (const segment of segments) byRow[segment.row].push(segment);
  return byRow;
}

// Which go next, as the cache does it: the leaf that nobody has locked and that was used longest
// ago, and when all that follows a segment is gone, that too is a leaf.
function markVictims(segments) {
  const left = new Map();
  const isLoose = (segment) => segment.node && segment.node.locks === 0;
  const leaves = segments.filter((segment) => segment.children.length === 0 && isLoose(segment));
  for (let turn = 1; turn <= toldVictims && leaves.length > 0; turn += 1) {
    let oldest = 0;
    leaves.forEach((leaf, i) => {
      if (leaf.node.access < leaves[oldest].node.access) oldest = i;
    });
    const [victim] = leaves.splice(oldest, 1);
    victim.turn = turn;
    const {parent} = victim;
    if (!parent) continue;
    left.set(parent, (left.get(parent) ?? parent.children.length) - 1);
    if (left.get(parent) === 0 && isLoose(parent)) leaves.push(parent);
  }
}

// Marks what of a prompt was found and what was computed. A segment is shared in part when the next
// prompt differs in its middle.
function markPrompt(layout, tree, prompt) {
  for (const segment of layout.segments) segment.found = segment.computed = 0;
  if (!prompt) return;
  const firsts = new Map(layout.segments.map((segment) => [segment.first, segment]));
  let segment;
  for (const page of tree.find(prompt.tokens)) {
    segment = firsts.get(page) ?? segment;
    if (!segment) return;
    const end = Math.min(page.position + tree.pageSize, prompt.tokens.length);
    segment.computed = end - segment.begin;
    segment.found = Math.max(0, Math.min(end, prompt.found) - segment.begin);
  }
}
