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
    `${pages.total.toLocaleString('en')} of ${counted(tree.pageSize, 'token')} each · ` +
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

const events = new EventSource('/cache/events');
const hear = (name, act) => events.addEventListener(name, ({data}) => {
  act(JSON.parse(data));
  picture.draw();
});
hear('snapshot', ({page_size: size}) => {
  tree.clear(size);
  picture.exact = false;
});
hear('records', ({records, words, special}) => {
  tree.addWords(words, special);
  records.forEach((record) => tree.apply(record));
});
hear('exact', () => { picture.exact = true; });
hear('nodes', (nodes) => tree.setNodes(nodes));
hear('stats', showStats);

const connection = document.getElementById('connection');
const say = (text, isLive) => {
  connection.textContent = text;
  connection.classList.toggle('live', isLive);
};
events.addEventListener('open', () => say('live', true));
events.addEventListener('error', () => say('the server is not there; trying again', false));

fetch('/v1/models').then((response) => response.json()).then(({data}) => {
  document.getElementById('model').textContent = data[0].id;
}).catch(() => {}); // said above

// For tests, and for whoever opens the console.
window.radixkv = {tree, picture, chats};
