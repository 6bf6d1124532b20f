// Puts it together: events in, pictures out.

const tree = new PageTree();
const picture = new Picture(tree);
const hitRate = new Chart('hit-rate', (share) => `${Math.round(share * 100)} %`, 1);
const firstToken = new Chart('first-token', inMilliseconds, 0.001);
const chats = new Chats((prompt) => picture.setPrompt(prompt));

const pageStates = [
  ['locked', 'cached, locked', ({cached, reclaimable}) => cached - reclaimable],
  ['cached', 'cached, can go', ({reclaimable}) => reclaimable],
  ['private', 'private to a request', (pages) => pages.private],
  ['free', 'free', ({free}) => free],
];

function element(name, className, text = '') {
  return Object.assign(document.createElement(name), {className, textContent: text});
}

// An entry of a legend: a colour, and text that may change.
function legendEntry(className, text = '') {
  const entry = element('li', '');
  entry.append(element('i', className), text);
  return entry;
}

// A bar for each pool, which has a group of layers, and what there is in the tree of that.
function showGroups(groups) {
  const bars = groups.map((group) => {
    const bar = element('div', 'page-bar');
    bar.append(...pageStates.map(([state]) => element('i', state)));
    bar.setAttribute('role', 'img');
    bar.setAttribute('aria-label', `Pages of ${nameOf(group)} by state`);
    return bar;
  });
  const names = groups.length > 1 ? groups.map((group) => element('p', 'pool', nameOf(group))) : [];
  document.getElementById('page-bars').replaceChildren(
    ...bars.flatMap((bar, i) => [...names.slice(i, i + 1), bar]));
  document.getElementById('page-legend').replaceChildren(
    ...pageStates.map(([state]) => legendEntry(state, ' ')));
  document.getElementById('group-legend').replaceChildren(
    ...groups.slice(1).map((group) => legendEntry(group.kind,
      group.kind === 'state' ? 'saved state' : `pages of ${nameOf(group)}`)));
}

function showPages(pools, evicted) {
  const bars = document.querySelectorAll('.page-bar');
  const legend = document.getElementById('page-legend');
  const numbers = (count) => pools.map((pool) => count(pool).toLocaleString('en')).join(' · ');
  pageStates.forEach(([, name, count], i) => {
    pools.forEach((pool, j) => { bars[j].children[i].style.flexGrow = count(pool); });
    legend.children[i].lastChild.data = `${name}: ${numbers(count)}`;
  });
  const pages = pools.length > 1 ? `${numbers(({total}) => total)} pages` :
    `${counted(pools[0].total, 'page')} of ${counted(tree.pageSize, 'token')} each`;
  document.getElementById('page-counts').textContent =
    `${pages} · ${evicted.toLocaleString('en')} evicted so far`;
}

// The charts show what changed between two looks at the counters.
let before;

function showStats(stats) {
  showPages(stats.pages, stats.evicted_pages);
  if (before) {
    const [asked, found] = ['prompt_tokens', 'cached_tokens'].map((n) => stats[n] - before[n]);
    if (asked > 0) hitRate.add(found / asked);
    const answers = stats.first_tokens - before.first_tokens;
    const seconds = stats.first_token_seconds - before.first_token_seconds;
    if (answers > 0) firstToken.add(seconds / answers);
  }
  before = stats;
}

function showConnection(text, isLive) {
  const connection = document.getElementById('connection');
  connection.textContent = text;
  connection.classList.toggle('live', isLive);
}

const acts = {
  snapshot: (told) => {
    tree.clear(told);
    showGroups(told.groups);
    showConnection('reading what is there', false);
  },
  records: ({records, words, special}) => {
    tree.addWords(words, special);
    records.forEach((record) => tree.apply(record));
  },
  exact: () => showConnection('live', true),
  nodes: (nodes) => tree.setNodes(nodes),
  stats: showStats,
};

function listen() {
  const events = new EventSource('/cache/events');
  for (const [name, act] of Object.entries(acts))
    events.addEventListener(name, ({data}) => {
      act(JSON.parse(data));
      picture.draw();
    });
  events.addEventListener('error', () => {
    const isRefused = events.readyState === EventSource.CLOSED;
    showConnection(isRefused ? 'refused; perhaps too many pages are open. Trying again' :
      'the server is not there. Trying again', false);
    // Of itself it tries again only when it was not refused.
    if (isRefused) setTimeout(listen, 3000);
  });
}

listen();

fetch('/v1/models').then((response) => response.json()).then(({data}) => {
  document.getElementById('model').textContent = data[0].id;
}).catch(() => {}); // said above

// For tests, and for whoever opens the console.
window.radixkv = {tree, picture, chats};
