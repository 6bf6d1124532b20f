// What is said of a segment when somebody points at it.

function counted(number, one, several = `${one}s`) {
  return `${number.toLocaleString('en')} ${number === 1 ? one : several}`;
}

// What the pages of a group of layers are.
function nameOf({kind, window}) {
  return {full: 'full attention', window: `windows of ${window}`, state: 'states'}[kind];
}

// What there is to say of a segment, as elements. Its text is somebody's, and never markup.
function describe(segment, words, groups) {
  const {node, begin, end, count, first: {space}} = segment;
  const facts = [`tokens ${begin} to ${end}`, counted(count, 'page')];
  segment.held.forEach((runs, i) => {
    const pages = runs.reduce((sum, [from, to]) => sum + to - from, 0);
    facts.push(groups[i + 1].kind === 'state' ? counted(pages, 'saved state') :
      `${counted(pages, 'page')} of ${nameOf(groups[i + 1])}`);
  });
  if (node) {
    facts.push(node.locks > 0 ? `locked by ${node.locks}` : 'not locked');
    facts.push(counted(node.hits, 'hit'));
  }
  if (segment.found > 0) facts.push(`${segment.found} found for the latest prompt`);
  if (segment.turn > 0) facts.push(`number ${segment.turn} to go`);
  if (space) facts.push(`namespace ${space.slice(0, 12)}`);
  const head = document.createElement('p');
  head.textContent = facts.join(' · ');
  const text = document.createElement('div');
  text.append(...tokenElements(segment, words));
  return [head, text];
}

const shownTokens = 240;

function tokenElements(segment, words) {
  const cut = segment.end - segment.begin - shownTokens;
  const elements = words.pieces(segment, shownTokens).map(({text, isSpecial}) => {
    const element = document.createElement('span');
    element.textContent = text;
    if (isSpecial) element.className = 'special';
    return element;
  });
  if (cut > 0) elements.push(document.createTextNode(` … and ${cut} more`));
  return elements;
}
