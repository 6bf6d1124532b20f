// The tree on the screen: when it is drawn again, and what the pointer and the keys show of it.
class Picture {
  constructor(tree) {
    this.tree = tree;
    this.words = new Words(tree);
    this.view = document.getElementById('view');
    this.canvas = document.getElementById('picture');
    this.detail = document.getElementById('detail');
    this.context = this.canvas.getContext('2d');
    this.layout = layOut(tree);
    this.laidOut = -1; // the tree's version
    this.layoutEnds = 0;
    this.layoutTime = 0;
    this.chosen = null; // the first page of the segment under the pointer
    this.frames = 0;
    this.slowest = 0;
    this.colours = readColours();
    this.listen();
  }

  listen() {
    new ResizeObserver(() => this.draw()).observe(this.view);
    this.view.addEventListener('scroll', () => this.draw());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.colours = readColours();
      this.draw();
    });
    this.view.addEventListener('pointermove', (event) => this.point(event));
    this.view.addEventListener('pointerleave', () => this.choose(null));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    document.getElementById('to-next').addEventListener('click', () => {
      const first = this.layout.segments.find(({turn}) => turn === 1);
      if (first) this.scrollTo(first);
    });
    this.canvas.addEventListener('blur', () => this.choose(null));
  }

  // The prompt whose parts are marked: {tokens, found}, or nothing.
  setPrompt(prompt) {
    this.prompt = prompt;
    this.laidOut = -1;
    this.follows = Boolean(prompt);
    this.draw();
  }

  // Draws soon: once for everything that happens until the next frame.
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      const start = performance.now();
      this.update(start);
      this.paint();
      this.frames += 1;
      this.slowest = Math.max(this.slowest, performance.now() - start);
    });
  }

  // Lays out again what changed. That takes longer the more there is; at most a quarter of the time
  // goes into it.
  update(now) {
    if (this.laidOut === this.tree.version) return;
    if (this.laidOut >= 0 && now < this.layoutEnds + 3 * this.layoutTime) {
      setTimeout(() => this.draw(), this.layoutEnds + 3 * this.layoutTime - now);
      return;
    }
    this.laidOut = this.tree.version;
    this.layout = layOut(this.tree);
    markPrompt(this.layout, this.tree, this.prompt);
    this.layoutEnds = performance.now();
    this.layoutTime = this.layoutEnds - now;
    this.tellCounts();
    this.tellDetail();
  }

  // What is told of the chosen segment is true now; nothing, when it is gone.
  tellDetail() {
    if (!this.chosen) return;
    const segment = this.chosenSegment();
    if (segment) this.tell(segment);
    else this.choose(null);
  }

  tell(segment) {
    this.detail.replaceChildren(...describe(segment, this.words, this.tree.groups));
  }

  tellCounts() {
    const {segments, rows} = this.layout;
    document.getElementById('empty').hidden = segments.length > 0;
    document.getElementById('tree-counts').textContent = segments.length === 0 ? '' :
      [counted(segments.length, 'segment'), counted(rows, 'leaf', 'leaves'),
        counted(this.tree.pages.size * this.tree.pageSize, 'token')].join(' · ');
  }

  paint() {
    const {canvas, context, view, layout} = this;
    const [width, height] = [view.clientWidth, view.clientHeight];
    const ratio = devicePixelRatio;
    const size = [width, height].map((length) => Math.round(length * ratio));
    if (canvas.width !== size[0] || canvas.height !== size[1]) {
      [canvas.width, canvas.height] = size;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.scale = new Scale(layout, width, height);
    this.followPrompt();
    // The canvas takes its own height of what can be scrolled.
    const rest = Math.max(0, this.scale.height - height);
    document.getElementById('height').style.height = `${rest}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (layout.segments.length === 0) return;
    const top = Math.min(view.scrollTop, rest);
    const drawing = new Drawing(context, this.scale, this.colours, this.words, layout);
    context.save();
    context.translate(0, -top);
    this.paintRows(drawing, this.scale.row(top + axisHeight), this.scale.row(top + height));
    context.restore();
    drawing.axis(layout.deepest);
  }

  // Scrolls once to where a new prompt ends.
  followPrompt() {
    const end = this.layout.segments.findLast((segment) => segment.computed > 0);
    if (!this.follows || !end) return;
    this.follows = false;
    document.getElementById('height').style.height =
      `${Math.max(0, this.scale.height - this.view.clientHeight)}px`;
    this.scrollTo(end);
  }

  paintRows(drawing, from, to) {
    const {byRow} = this.layout;
    const above = new Set();
    for (let row = Math.max(0, from - 1); row <= to && row < byRow.length; row += 1)
      for (const segment of byRow[row]) {
        // A line may come from far above, and go far below.
        for (let up = segment; up && !above.has(up); up = up.parent) {
          above.add(up);
          drawing.branches(up);
        }
      }
    const chosen = this.chosenSegment();
    for (let row = Math.max(0, from - 1); row <= to && row < byRow.length; row += 1)
      for (const segment of byRow[row]) drawing.bar(segment, segment === chosen);
  }

  chosenSegment() {
    if (!this.chosen) return undefined;
    return this.layout.segments.find((segment) => segment.first === this.chosen);
  }

  segmentAt(x, y) {
    if (!this.scale || y < axisHeight) return undefined;
    const row = this.layout.byRow[this.scale.row(y + this.view.scrollTop)] ?? [];
    // Also beside it, where its label is.
    return row.findLast((segment) => x >= this.scale.x(segment.begin));
  }

  point(event) {
    const box = this.view.getBoundingClientRect();
    const segment = this.segmentAt(event.clientX - box.left, event.clientY - box.top);
    this.choose(segment, event.clientX, event.clientY);
  }

  key(event) {
    const {byRow, segments} = this.layout;
    if (segments.length === 0) return;
    const now = this.chosenSegment();
    const beside = (row) => {
      const there = byRow[row] ?? [];
      return there.findLast((one) => one.begin <= now.begin) ?? there[0];
    };
    const to = {
      ArrowLeft: () => now.parent,
      ArrowRight: () => now.children[0],
      ArrowUp: () => beside(now.row - 1),
      ArrowDown: () => beside(now.row + 1),
      Home: () => segments[0],
      End: () => byRow[byRow.length - 1][0],
    }[event.key];
    if (event.key === 'Escape') this.choose(null);
    if (!to) return;
    event.preventDefault();
    const segment = now ? to() ?? now : segments[0];
    this.scrollTo(segment);
    const box = this.view.getBoundingClientRect();
    this.choose(segment, box.left + this.scale.x(segment.begin),
      box.top + this.scale.y(segment.row + 1) - this.view.scrollTop);
  }

  scrollTo(segment) {
    const {view, scale} = this;
    const y = scale.y(segment.row);
    if (y < view.scrollTop + axisHeight) view.scrollTop = y - axisHeight;
    const below = y + scale.rowHeight - view.clientHeight;
    if (below > view.scrollTop) view.scrollTop = below;
  }

  choose(segment, x, y) {
    const first = segment?.first ?? null;
    if (first !== this.chosen) {
      this.chosen = first;
      this.draw();
      if (segment) this.tell(segment);
    }
    this.detail.hidden = !segment;
    if (!segment) return;
    const {offsetWidth: width, offsetHeight: height} = this.detail;
    const left = Math.min(x + 14, innerWidth - width - 12);
    const top = y + 18 + height > innerHeight ? y - height - 14 : y + 18;
    this.detail.style.left = `${Math.max(12, left)}px`;
    this.detail.style.top = `${Math.max(12, top)}px`;
  }
}
