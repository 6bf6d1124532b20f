// How the tree looks: bars on a canvas, of the rows that can be seen.

const axisHeight = 20;
const sideMargin = 10;

// The colours of the style sheet, which follow the reader's choice of light or dark.
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ['surface', 'ink', 'muted', 'line', 'accent', 'cached', 'locked', 'found',
    'computed', 'next', 'free', 'on-bar', 'window', 'state'];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

// Where positions and rows are on the canvas.
class Scale {
  constructor(layout, width, height) {
    // Below its bar a segment has a strip for each group of layers beside the first.
    const strips = layout.groups.length - 1;
    const room = Math.floor((height - axisHeight) / layout.rows);
    this.rowHeight = Math.max(8 + 2 * strips, Math.min(30 + 5 * strips, room));
    this.stripHeight = this.rowHeight >= 16 + 5 * strips ? 5 : 2;
    this.barHeight = this.rowHeight - strips * this.stripHeight;
    this.showsText = this.barHeight >= 16;
    // What ends a row may say more beside it.
    const labels = this.showsText ? Math.min(360, width * 0.34) : 0;
    this.perPosition = (width - 2 * sideMargin - labels) / layout.deepest;
    this.width = width;
    this.height = axisHeight + layout.rows * this.rowHeight + 6;
  }

  x(position) { return sideMargin + position * this.perPosition; }

  y(row) { return axisHeight + row * this.rowHeight; }

  row(y) { return Math.floor((y - axisHeight) / this.rowHeight); }
}

// A round number of positions between two marks of the axis.
function tickStep(scale) {
  const least = 70 / scale.perPosition;
  let step = 1;
  while (step < least) step *= 2;
  return step;
}

class Drawing {
  constructor(context, scale, colours, words, {groups, pageSize}) {
    Object.assign(this, {context, scale, colours, words, groups, pageSize});
  }

  axis(deepest) {
    const {context, scale, colours} = this;
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, scale.width, axisHeight - 2);
    context.fillStyle = colours.muted;
    context.font = '10.5px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const step = tickStep(scale);
    for (let at = 0; at <= deepest; at += step)
      context.fillText(at === 0 ? '0 tokens' : String(at), scale.x(at), axisHeight / 2);
  }

  // The line from a segment's end to those that follow it.
  branches(segment) {
    const {context, scale, colours} = this;
    const last = segment.children[segment.children.length - 1];
    if (!last || last.row === segment.row) return;
    const x = Math.round(scale.x(segment.end)) - 0.5;
    context.strokeStyle = colours.muted;
    context.globalAlpha = 0.55;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, scale.y(segment.row) + scale.barHeight / 2);
    context.lineTo(x, scale.y(last.row) + scale.barHeight / 2);
    context.stroke();
    context.globalAlpha = 1;
  }

  bar(segment, isChosen) {
    const {context, scale, colours} = this;
    const gap = scale.barHeight > 12 ? 2 : 1;
    const x = scale.x(segment.begin) + 1;
    const y = scale.y(segment.row) + gap;
    const width = Math.max(2, scale.x(segment.end) - x);
    const height = scale.barHeight - 2 * gap;
    const isLocked = segment.node && segment.node.locks > 0;
    context.save();
    context.beginPath();
    context.roundRect(x, y, width, height, Math.min(4, height / 3));
    context.fillStyle = colours[isLocked ? 'locked' : 'cached'];
    context.fill();
    if (segment.computed > 0) {
      context.save();
      context.clip();
      this.part(segment, segment.computed, 'computed', y, height);
      this.part(segment, segment.found, 'found', y, height);
      if (isLocked) {
        context.fillStyle = colours.locked;
        context.fillRect(x, y + height - 3, width, 3);
      }
      context.restore();
    }
    if (segment.turn > 0) this.victim(x, y, width, height);
    if (isChosen) this.outline(colours.ink, 2, []);
    context.restore();
    if (scale.showsText) this.label(segment, x, y, width, height);
    segment.held.forEach((runs, i) => this.strip(segment, i, runs));
  }

  // Where a group has pages for the positions above; a state is after the last one of its page.
  strip(segment, i, runs) {
    const {context, scale, colours, pageSize} = this;
    const {kind} = this.groups[i + 1];
    const y = scale.y(segment.row) + scale.barHeight + i * scale.stripHeight - 1;
    const height = Math.max(2, scale.stripHeight - 1);
    const x = (pages) => scale.x(segment.begin + pages * pageSize);
    context.fillStyle = colours[kind === 'full' ? 'cached' : kind];
    for (const [from, to] of runs) {
      if (kind === 'state')
        for (let at = from + 1; at <= to; at += 1) context.fillRect(x(at) - 5, y, 5, height);
      else context.fillRect(x(from) + 1, y, Math.max(2, x(to) - x(from) - 1), height);
    }
  }

  // What goes next goes from its end.
  victim(x, y, width, height) {
    const {context, scale, colours} = this;
    this.outline(colours.next, 1.5, [3, 2]);
    if (scale.showsText) return;
    const end = Math.min(width, 12);
    context.fillStyle = colours.next;
    context.fillRect(x + width - end, y, end, height);
  }

  part(segment, positions, colour, y, height) {
    const {context, scale, colours} = this;
    const x = scale.x(segment.begin);
    context.fillStyle = colours[colour];
    context.fillRect(x, y, positions * scale.perPosition + (positions > 0 ? 1 : 0), height);
  }

  outline(colour, width, dashes) {
    const {context} = this;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(dashes);
    context.stroke();
    context.setLineDash([]);
  }

  label(segment, x, y, width, height) {
    const {context, scale, colours} = this;
    context.font = '11.5px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const middle = y + height / 2 + 0.5;
    let turnWidth = 0;
    if (segment.turn > 0 && width >= 16) {
      context.fillStyle = colours.next;
      context.textAlign = 'right';
      context.font = 'bold 11px system-ui, sans-serif';
      context.fillText(String(segment.turn), x + width - 5, middle);
      context.textAlign = 'left';
      context.font = '11.5px system-ui, sans-serif';
      turnWidth = 12;
    }
    const isLeaf = segment.children.length === 0;
    // Beside a leaf nothing stands.
    const outside = isLeaf && width < 160;
    const room = outside ? scale.width - x - width - 12 : width - 10 - turnWidth;
    if (room < 24) return;
    context.fillStyle = outside ? colours.muted : colours['on-bar'];
    const text = this.words.beginning(segment, Math.ceil(room / 4));
    context.fillText(this.shortened(text, room), outside ? x + width + 6 : x + 6, middle);
  }

  // As much of a text as there is room for.
  shortened(text, room) {
    const {context} = this;
    if (context.measureText(text).width <= room) return text;
    let [fits, tooLong] = [0, text.length];
    while (tooLong - fits > 1) {
      const middle = (fits + tooLong) >> 1;
      if (context.measureText(`${text.slice(0, middle)}…`).width <= room) fits = middle;
      else tooLong = middle;
    }
    return fits > 0 ? `${text.slice(0, fits)}…` : '';
  }
}

// The text of segments. Tokens are bytes, and a character may be cut between two.
class Words {
  constructor(tree) {
    this.tree = tree;
  }

  // All tokens of a segment.
  tokens(segment) {
    const pages = [];
    for (let page = segment.last; page; page = this.tree.pages.get(page.parent)) {
      pages.push(page.tokens);
      if (page === segment.first) break;
    }
    return pages.reverse().flat();
  }

  // The text of each of a segment's first tokens; a character is shown by the last of its own.
  pieces(segment, count = Infinity) {
    const {words, special, pages} = this.tree;
    const decoder = new TextDecoder();
    const text = (id) => decoder.decode(words.get(id) ?? new Uint8Array(), {stream: true});
    // Four tokens before may have begun a character that ends here.
    pages.get(segment.first.parent)?.tokens.slice(-4).forEach(text);
    return this.tokens(segment).slice(0, count).map((id) => (
      special.has(id) ? {text: special.get(id), isSpecial: true} : {text: text(id)}));
  }

  // The first characters of a segment, on one line; without the end of a message when the next one
  // begins in the first page.
  beginning(segment, characters) {
    const {pageSize} = this.tree;
    const pieces = this.pieces(segment, characters + pageSize);
    const next = pieces.slice(0, pageSize).findIndex(({isSpecial}) => isSpecial);
    const said = pieces.slice(Math.max(0, next));
    const line = said.map(({text, isSpecial}) => (isSpecial ? ' ' : text)).join('');
    return line.replace(/\s+/g, ' ').trim();
  }
}
