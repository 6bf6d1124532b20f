// Pages of a group of layers beside the first: each hangs on a page of that one.
class HungPages {
  constructor() {
    this.under = new Map(); // number -> the page that it hangs on
    this.over = new Map(); // that page -> the number
  }

  apply({stored, under, removed}) {
    if (removed) removed.forEach((number) => this.remove(number));
    else stored.forEach((number, i) => this.store(number, under[i]));
  }

  store(number, under) {
    this.remove(number);
    this.removeFrom(under);
    this.under.set(number, under);
    this.over.set(under, number);
  }

  remove(number) {
    this.over.delete(this.under.get(number));
    this.under.delete(number);
  }

  removeFrom(under) {
    this.remove(this.over.get(under));
  }
}

// What the cache holds, page by page, as its journal tells it.
class PageTree {
  constructor() {
    this.version = 0;
    this.clear({page_size: 1, groups: [{kind: 'full'}]});
  }

  // Groups of layers: {kind: 'full' | 'window' | 'state', window}.
  clear({page_size: pageSize, groups}) {
    this.pageSize = pageSize;
    this.groups = groups;
    this.hung = groups.slice(1).map(() => new HungPages());
    this.pages = new Map(); // number -> {number, parent, position, tokens, space}
    this.followers = new Map(); // number -> the pages that follow it
    this.spaces = new Map(); // name of a namespace -> its first pages
    this.nodes = new Map(); // last page of a node -> {locks, access, hits}
    this.words = new Map(); // token id -> its bytes
    this.special = new Map(); // id of a token that is no text -> its name
    this.version += 1;
  }

  // A record, as /cache/events has it. To a page number it is an assignment: this content, or none.
  apply(record) {
    if (record.group > 0) this.hung[record.group - 1].apply(record);
    else if (record.stored) this.store(record);
    else if (record.removed) record.removed.forEach((number) => this.remove(number));
    else if (record.cleared !== undefined) this.clearSpace(record.cleared);
    this.version += 1;
  }

  store({stored, parent, position, tokens, space}) {
    stored.forEach((number, i) => {
      this.remove(number);
      const from = i * this.pageSize;
      const page = {
        number,
        parent: i === 0 ? parent : stored[i - 1],
        position: position + from,
        tokens: tokens.slice(from, from + this.pageSize),
        space,
      };
      this.pages.set(number, page);
      const [map, key] = this.siblingsOf(page);
      if (!map.has(key)) map.set(key, new Set());
      map.get(key).add(page);
    });
  }

  remove(number) {
    const page = this.pages.get(number);
    if (!page) return;
    this.pages.delete(number);
    const [map, key] = this.siblingsOf(page);
    map.get(key).delete(page);
    if (map.get(key).size === 0) map.delete(key);
  }

  siblingsOf(page) {
    return page.parent === 0 ? [this.spaces, page.space] : [this.followers, page.parent];
  }

  clearSpace(name) {
    for (const page of [...this.pages.values()]) {
      if (page.space !== name) continue;
      this.hung.forEach((pages) => pages.removeFrom(page.number));
      this.remove(page.number);
    }
  }

  addWords(words, special) {
    for (const [id, text] of Object.entries(words))
      this.words.set(Number(id), Uint8Array.from(text, (byte) => byte.charCodeAt(0)));
    for (const [id, name] of Object.entries(special))
      this.special.set(Number(id), name || `⟨${id}⟩`);
  }

  setNodes({nodes, gone}) {
    for (const page of gone) this.nodes.delete(page);
    for (const [page, , locks, access, hits] of nodes) this.nodes.set(page, {locks, access, hits});
    this.version += 1;
  }

  // The pages that hold a prompt, the first first; of the last one perhaps only the beginning.
  find(tokens, space = '') {
    const found = [];
    let next = this.spaces.get(space);
    for (let at = 0; next && at < tokens.length; at += this.pageSize) {
      const part = tokens.slice(at, at + this.pageSize);
      const page = [...next].find((one) => part.every((id, i) => one.tokens[i] === id));
      if (!page) break;
      found.push(page);
      next = this.followers.get(page.number);
    }
    return found;
  }
}
