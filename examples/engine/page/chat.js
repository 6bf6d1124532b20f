// The chats: several side by side, which begin with the same system prompt.

const beginnings = [
  'When are you open on Saturday?',
  'How many books can I borrow at once?',
  'Do you have rooms for a study group?',
];

class Chats {
  // `show` is told which prompt is the latest one of the chat that is seen.
  constructor(show) {
    this.show = show;
    this.chats = [];
    this.tabs = document.getElementById('chats');
    this.list = document.getElementById('messages');
    this.question = document.getElementById('question');
    this.system = document.getElementById('system');
    this.send = document.getElementById('send');
    document.getElementById('new-chat').addEventListener('click', () => this.begin());
    document.getElementById('ask').addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.now.stop) this.now.stop.abort();
      else this.say(this.question.value);
    });
    this.question.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.now.stop) this.say(this.question.value);
    });
    this.tabs.addEventListener('keydown', (event) => this.key(event));
    this.suggest();
    this.begin();
  }

  suggest() {
    const box = document.getElementById('suggestions');
    for (const text of beginnings) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = text;
      button.addEventListener('click', () => this.say(text));
      box.append(button);
    }
  }

  begin() {
    const tab = document.createElement('button');
    tab.type = 'button';
    tab.setAttribute('role', 'tab');
    tab.textContent = `Chat ${this.chats.length + 1}`;
    const chat = {tab, messages: [], items: [], prompt: null, stop: null};
    tab.addEventListener('click', () => this.turnTo(chat));
    this.chats.push(chat);
    this.tabs.append(tab);
    this.turnTo(chat);
    this.question.focus();
  }

  turnTo(chat) {
    this.now = chat;
    for (const {tab} of this.chats) {
      tab.setAttribute('aria-selected', String(tab === chat.tab));
      tab.tabIndex = tab === chat.tab ? 0 : -1;
    }
    this.list.replaceChildren(...chat.items);
    this.show(chat.prompt);
    this.refresh();
  }

  key(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    const chat = this.chats[this.chats.indexOf(this.now) + step];
    if (!chat) return;
    this.turnTo(chat);
    chat.tab.focus();
  }

  // What depends on whether an answer is coming.
  refresh() {
    this.send.textContent = this.now.stop ? 'Stop' : 'Send';
    document.getElementById('suggestions').hidden = this.now.messages.length > 0;
    this.list.scrollTop = this.list.scrollHeight;
  }

  add(chat, kind, text) {
    const item = document.createElement('li');
    item.className = kind;
    const words = document.createElement('div');
    words.textContent = text;
    item.append(words);
    chat.items.push(item);
    if (chat === this.now) this.list.append(item);
    return item;
  }

  async say(text) {
    const chat = this.now;
    if (text.trim() === '' || chat.stop) return;
    this.question.value = '';
    chat.messages.push({role: 'user', content: text});
    this.add(chat, 'user', text);
    const item = this.add(chat, 'assistant waiting', '');
    chat.stop = new AbortController();
    this.refresh();
    const answer = {role: 'assistant', content: ''};
    try {
      const system = {role: 'system', content: this.system.value};
      const messages = system.content.trim() ? [system, ...chat.messages] : chat.messages;
      await ask(messages, chat.stop.signal, {
        prompt: (prompt) => this.tell(chat, item, prompt),
        text: (piece) => {
          answer.content += piece;
          item.firstChild.textContent = answer.content;
          if (chat === this.now) this.list.scrollTop = this.list.scrollHeight;
        },
        cut: () => item.classList.add('cut'),
      });
    } catch (error) {
      if (error.name !== 'AbortError') this.fail(item, error);
    }
    item.classList.remove('waiting');
    // A question without an answer is not asked again with the next one.
    if (answer.content) chat.messages.push(answer);
    else chat.messages.pop();
    chat.stop = null;
    this.refresh();
  }

  fail(item, error) {
    item.classList.add('failed');
    item.firstChild.textContent += `${item.firstChild.textContent ? '\n' : ''}${error.message}`;
  }

  // Below the answer: how much of the prompt was found, and what that was good for.
  tell(chat, item, prompt) {
    chat.prompt = prompt;
    if (chat === this.now) this.show(prompt);
    const {found, tokens, seconds} = prompt;
    const note = document.createElement('div');
    note.className = 'note';
    const time = document.createElement('b');
    time.textContent = inMilliseconds(seconds);
    note.append(time, ` to the first token · ${found} of ${tokens.length} tokens found`);
    const share = document.createElement('div');
    share.className = 'share';
    const part = document.createElement('i');
    part.style.width = `${(100 * found) / tokens.length}%`;
    share.append(part);
    note.append(share);
    item.append(note);
  }
}
