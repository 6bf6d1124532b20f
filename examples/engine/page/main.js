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

function showPages(pages, evicted) {
  const bar = document.getElementById('page-bar');
  const legend = document.getElementById('page-legend');
  if (bar.children.length === 0)
    for (const [state] of pageStates) {
      for (const [box, name] of [[bar, 'i'], [legend, 'li']]) {
        const element = document.createElement(name);
        if (name === 'i') element.className = state;
        else element.append(Object.assign(document.createElement('i'), {className: state}), '');
        box.append(element);
      }
    }
  pageStates.forEach(([, name, count], i) => {
    bar.children[i].style.flexGrow = count(pages);
    legend.children[i].lastChild.data = `${name}: ${count(pages).toLocaleString('en')}`;
  });
  document.getElementById('page-counts').textContent =
    `${counted(pages.total, 'page')} of ${counted(tree.pageSize, 'token')} each · ` +
    `${evicted.toLocaleString('en')} evicted so far`;
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
  snapshot: ({page_size: size}) => {
    tree.clear(size);
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
