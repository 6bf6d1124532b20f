"""B11: the reference engine's page in a browser without a screen:

    browser.py http://HOST:PORT chat
    browser.py http://HOST:PORT nodes
    browser.py http://HOST:PORT window
    browser.py http://HOST:PORT state
    browser.py http://HOST:PORT picture FILE.png
"""

import contextlib
import json
import re
import sys
import threading
import time
import urllib.request

from playwright.sync_api import expect, sync_playwright

# For what is sure to happen, on a machine that has much else to do.
PATIENCE_MS = 60_000
# What a person calls hanging. Not how fast it is.
HANG_SECONDS = 10
COLOURS = ["surface", "cached", "locked", "found", "computed", "next", "window", "state"]
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script> &lt;b&gt; "\'`'


class Session:
    """A browser with one page of the engine, which asks nobody else for anything."""

    def __init__(self, playwright, url: str) -> None:
        self.url = url
        self.browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
        )
        self.wrong: list[str] = []
        self.page = self.open()

    def open(self, connection: str = "live"):
        page = self.browser.new_page(
            viewport={"width": 1280, "height": 720}, color_scheme="light"
        )
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", lambda said: self.note(said.type, said.text))
        page.on("request", lambda request: self.note_request(request.url))
        page.goto(self.url)
        expect(page.locator("#connection")).to_contain_text(connection)
        return page

    def note(self, kind: str, text: str) -> None:
        if kind == "error":
            self.wrong.append(f"{kind}: {text}")

    def note_request(self, url: str) -> None:
        if not url.startswith((self.url + "/", "data:")):
            self.wrong.append(f"asks {url}")

    def close(self) -> None:
        self.browser.close()
        assert not self.wrong, self.wrong

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def eventually(self, selector: str, text: str | re.Pattern) -> None:
        expect(self.page.locator(selector)).to_contain_text(text)

    def ask(self, question: str) -> tuple[str, int, int]:
        """Returns the answer, and how many of the prompt's tokens were found, of how many."""
        self.page.fill("#question", question)
        self.page.press("#question", "Enter")
        expect(self.page.locator("#send")).to_have_text("Send")
        last = self.page.locator("#messages li").last
        expect(last.locator(".note")).to_be_visible()
        note = last.locator(".note").inner_text()
        found, of = re.search(r"(\d+) of (\d+) tokens found", note).groups()
        assert re.match(r"[\d.]+ ms to the first token", note), note
        return last.locator("div").first.inner_text(), int(found), int(of)

    def pixels(self) -> dict[str, int]:
        """How much of the tree's picture has each colour."""
        return self.page.evaluate(
            """async (names) => {
              await new Promise((drawn) => { radixkv.picture.draw(); setTimeout(drawn, 300); });
              const canvas = document.getElementById('picture');
              const context = canvas.getContext('2d');
              const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
              const style = getComputedStyle(document.documentElement);
              // Thin lines are blended with what is behind them.
              const counts = names.map((name) => {
                const colour = style.getPropertyValue(`--${name}`).trim();
                const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
                let count = 0;
                for (let i = 0; i < data.length; i += 4)
                  if (data[i + 3] > 200 &&
                      parts.every((part, j) => Math.abs(part - data[i + j]) < 12)) count += 1;
                return [name, count];
              });
              return Object.fromEntries(counts);
            }""",
            COLOURS,
        )

    def hover(self, first_words: str) -> str:
        """Points at the segment that has these words; returns what is said of it."""
        place = self.page.evaluate(
            """(words) => {
              const {layout, scale, words: text, view} = radixkv.picture;
              const segment = layout.segments.find((one) =>
                text.pieces(one).map((piece) => piece.text).join('').includes(words));
              const box = view.getBoundingClientRect();
              return segment && [box.left + (scale.x(segment.begin) + scale.x(segment.end)) / 2,
                box.top + scale.y(segment.row) + scale.rowHeight / 2 - view.scrollTop];
            }""",
            first_words,
        )
        assert place, f"no segment has {first_words}"
        self.page.mouse.move(*place)
        expect(self.page.locator("#detail")).to_be_visible()
        return self.text("#detail")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def check_contrast(session: Session, scheme: str) -> str:
    """What is written can be read, and what is drawn can be told apart. Returns the background."""
    session.page.emulate_media(color_scheme=scheme)
    variables = session.page.evaluate(
        """() => {
          const style = getComputedStyle(document.documentElement);
          const names = ['background', 'surface', 'ink', 'muted', 'accent', 'on-accent', 'next',
            'on-bar', 'cached', 'locked', 'found', 'computed', 'private', 'free', 'window',
            'state'];
          return Object.fromEntries(names.map((n) => [n, style.getPropertyValue(`--${n}`).trim()]));
        }"""
    )
    readable = [
        *[(text, on) for text in ("ink", "muted") for on in ("background", "surface")],
        ("on-accent", "accent"),
        ("accent", "surface"),
        *[("on-bar", bar) for bar in ("cached", "locked", "found", "computed")],
    ]
    for text, on in readable:
        ratio = contrast(variables[text], variables[on])
        assert ratio >= 4.5, f"{scheme}: {text} on {on}: {ratio:.1f}"
    for drawn in ("next", "window", "state"):
        assert contrast(variables[drawn], variables["surface"]) >= 3, drawn
    states = [variables[name] for name in ("cached", "locked", "found", "private", "free")]
    assert len(set(states)) == len(states)
    return variables["background"]


def post(url: str, path: str, body: dict):
    request = urllib.request.Request(url + path, data=json.dumps(body).encode())
    return urllib.request.urlopen(request, timeout=PATIENCE_MS / 1000)


def metric(url: str, name: str) -> int:
    with urllib.request.urlopen(url + "/metrics") as answer:
        return int(re.search(rf"^{re.escape(name)} (\d+)$", answer.read().decode(), re.M)[1])


def check_chats(session: Session) -> None:
    page = session.page
    expect(page.locator("#empty")).to_be_visible()
    assert session.pixels()["cached"] == 0

    # Three users over one system prompt, and the first one again.
    answer, found, _ = session.ask("When are you open on Saturday?")
    assert answer.strip() and found == 0, (answer, found)
    session.eventually("#tree-counts", "1 leaf")
    before = session.pixels()
    assert before["found"] == 0 and before["computed"] > 1000, before
    for question in ("How many books can I borrow at once?", "Do you have rooms for groups?"):
        page.click("#new-chat")
        answer, found, of = session.ask(question)
        assert answer.strip() and 0.9 * of < found < of, (answer, found, of)
    page.get_by_role("tab", name="Chat 1").click()
    assert page.locator("#messages li").count() == 2
    _, found, of = session.ask("And on Sunday?")
    assert 0.9 * of < found < of, (found, of)
    session.eventually("#tree-counts", "3 leaves")
    after = session.pixels()
    assert after["found"] > 5000 and after["computed"] > 50 and after["next"] > 50, after
    assert after["cached"] > 500, "what belongs to others is not the prompt's"
    session.eventually("#hit-rate output", re.compile(r"9\d %"))
    session.eventually("#first-token output", "ms")
    assert page.locator("#hit-rate circle").count() == 4


def check_what_is_shown(session: Session) -> None:
    page = session.page
    said = session.hover("You are the assistant of the Riverside Public Library")
    assert "found for the latest prompt" in said and "not locked" in said, said
    # By the keys alone.
    page.locator("#picture").focus()
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    page.keyboard.press("Home")
    expect(page.locator("#detail")).to_contain_text("tokens 0 to")
    page.keyboard.press("End")
    expect(page.locator("#detail")).not_to_contain_text("tokens 0 to")
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()


def check_hostile_text(session: Session) -> None:
    """Text that would be markup, in a chat, and by another client."""
    page = session.page
    page.click("#new-chat")
    session.ask(HOSTILE)
    assert session.text("#messages .user div") == HOSTILE
    others = f"another client says {HOSTILE} and so on, for several pages of tokens"
    post(session.url, "/v1/completions", {"prompt": others, "max_tokens": 1}).close()
    session.eventually("#tree-counts", "5 leaves")
    assert "onerror" in session.hover("another client")
    assert page.locator("img, #messages script, #detail script, #detail b").count() == 0
    assert page.evaluate("window.hacked") is None


def check_locks(session: Session) -> None:
    """What another client keeps, until it lets go."""
    legend = session.page.locator("#page-legend li").first
    expect(legend).to_have_text("cached, locked: 0")
    body = {"prompt": "word " * 60, "max_tokens": 2, "retain": True}
    with post(session.url, "/v1/completions", body) as answer:
        kept = json.load(answer)["choices"][0]["retained_id"]
    expect(legend).not_to_have_text("cached, locked: 0")
    session.eventually("#tree-counts", "6 leaves")
    session.page.locator("#picture").focus()
    session.page.keyboard.press("End")
    session.eventually("#detail", "locked by 1")
    assert session.pixels()["locked"] > 50
    path = f"{session.url}/v1/completions/{kept}"
    urllib.request.urlopen(urllib.request.Request(path, method="DELETE")).close()
    expect(legend).to_have_text("cached, locked: 0")
    # What is told of a segment stays true.
    session.eventually("#detail", "not locked")
    assert session.pixels()["locked"] == 0


def check_too_many_pages(session: Session) -> None:
    """One too many says so, and shows the cache once another one is closed."""
    others = [session.open() for _ in range(7)]
    late = session.open("refused")
    assert all("503" in said for said in session.wrong), session.wrong
    others.pop().close()
    expect(late.locator("#connection")).to_have_text("live")
    session.wrong.clear()
    for page in [late, *others]:
        page.close()


def check_chat(session: Session) -> None:
    check_chats(session)
    check_what_is_shown(session)
    check_hostile_text(session)
    check_locks(session)
    check_too_many_pages(session)
    assert check_contrast(session, "dark") != check_contrast(session, "light")
    for scheme in ("dark", "light"):
        session.page.emulate_media(color_scheme=scheme)
        assert session.pixels()["cached"] > 500, f"not drawn in the colours of {scheme}"
    session.page.set_viewport_size({"width": 400, "height": 800})
    wide = session.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"{wide} pixels wider than the window"
    assert session.pixels()["cached"] > 50


def take_picture(session: Session, file: str) -> None:
    """Three users in turns, as in `make demo`, while others have their own requests."""
    page = session.page
    turns = [
        "When are you open on Saturday?",
        "How many books can I borrow at once?",
        "Do you have rooms for a study group?",
        "And on Sunday?",
        "What does a late book cost?",
        "How do I reserve one?",
        "How long may I keep a film?",
    ]
    for turn, question in enumerate(turns):
        if 0 < turn < 3:
            page.click("#new-chat")
        page.get_by_role("tab", name=f"Chat {turn % 3 + 1}").click()
        session.ask(question)
    others = []
    for number in ("one", "two"):
        message = {"role": "user", "content": f"Tell me story number {number} about a library."}
        body = {"messages": [message], "max_tokens": 500, "temperature": 0, "stream": True}
        others.append(post(session.url, "/v1/chat/completions", body))
        others[-1].readline()
    page.get_by_role("tab", name="Chat 2").click()
    page.fill("#question", "Can I renew it by phone?")
    page.press("#question", "Enter")
    expect(page.locator(".note")).to_have_count(3)
    page.wait_for_timeout(1000)
    page.screenshot(path=file)
    for other in others:
        other.close()


def grow(url: str, request_count: int) -> None:
    """Each request's samples part at once: about 60 nodes."""
    for i in range(request_count):
        body = {
            "prompt": [65 + i % 26, 97 + i // 26 % 26, 100 + i % 90],
            "n": 128,
            "max_tokens": 3,
            "temperature": 1,
            "seed": i,
            "ignore_eos": True,
        }
        post(url, "/v1/completions", body).read()


def check_groups(session: Session, kind: str) -> None:
    """Layers of two kinds: the pages of each, what there is of them in the tree, and in words."""
    page = session.page
    name = "windows of 40" if kind == "window" else "states"
    assert page.locator(".page-bar").count() == 2
    assert page.locator(".pool").all_inner_texts() == ["full attention", name]
    session.eventually("#group-legend", "windows of 40" if kind == "window" else "saved state")
    assert session.pixels()[kind] == 0

    def told(number: int) -> list[int]:
        """How many pages of each pool are in a state, as the legend says."""
        entry = page.locator("#page-legend li").nth(number).inner_text()
        return [int(count.replace(",", "")) for count in entry.split(": ")[1].split(" · ")]

    for question in ("When are you open?", "And on Sunday?"):
        session.ask(question)
    session.eventually("#tree-counts", "leaf")
    expect(page.locator("#page-legend li").first).to_have_text("cached, locked: 0 · 0")
    # The legend is asked for, and what is drawn is told of: either may be ahead for a moment.
    page.wait_for_function(
        """() => {
            const legend = document.querySelectorAll("#page-legend li")[1].innerText;
            const [full, hung] = legend.split(": ")[1].split(" · ")
                .map((count) => Number(count.replaceAll(",", "")));
            const held = radixkv.picture.layout.segments.flatMap(({held}) => held[0]);
            return radixkv.tree.pages.size === full
                && held.reduce((sum, [from, to]) => sum + to - from, 0) === hung;
        }"""
    )
    full, hung = told(1)
    assert 0 < hung < full, (hung, full)
    other = "state" if kind == "window" else "window"
    pixels = session.pixels()
    assert pixels[kind] > 20 and pixels[other] == 0, pixels
    page.locator("#picture").focus()
    page.keyboard.press("Home")
    said = "pages of windows of 40" if kind == "window" else "saved state"
    expect(page.locator("#detail")).to_contain_text(said)
    # What comes and goes there leaves as much as the cache has.
    for i in range(60):
        post(session.url, "/v1/completions", {"prompt": f"{i} " * 40, "max_tokens": 1}).read()
    cached = {
        group: metric(session.url, f'engine_group_pages{{group="{group}",state="cached"}}')
        for group in ("full", kind)
    }
    page.wait_for_function(
        "([full, hung]) => radixkv.tree.pages.size === full && "
        "radixkv.tree.hung[0].over.size === hung && radixkv.tree.hung[0].under.size === hung",
        arg=[cached["full"], cached[kind]],
    )
    later = session.open()
    expect(later.locator("#tree-counts")).to_have_text(session.text("#tree-counts"))
    same = "JSON.stringify([...radixkv.tree.hung[0].under].sort())"
    assert later.evaluate(same) == page.evaluate(same)
    later.close()


def check_nodes(session: Session) -> None:
    page = session.page
    growing = threading.Thread(target=grow, args=(session.url, 300))
    growing.start()
    # Somebody types meanwhile.
    slowest, keys = 0.0, 0
    while growing.is_alive():
        begun = time.monotonic()
        page.press("#question", "x")
        keys += 1
        assert page.input_value("#question") == "x" * keys
        page.evaluate("new Promise((drawn) => requestAnimationFrame(drawn))")
        slowest = max(slowest, time.monotonic() - begun)
    growing.join()
    assert slowest < HANG_SECONDS, f"it hung for {slowest:.1f} s"

    nodes = metric(session.url, "engine_cache_nodes")
    evicted = metric(session.url, "engine_evicted_pages_total")
    assert nodes > 10_000 and evicted > 1000, (nodes, evicted)
    counted = f"{nodes:,} segments"
    session.eventually("#tree-counts", counted)
    session.eventually("#page-counts", f"{evicted:,} evicted")
    pages = metric(session.url, 'engine_kv_pages{state="cached"}')
    page.wait_for_function("pages => radixkv.tree.pages.size === pages", arg=pages)
    begun = time.monotonic()
    page.locator("#view").hover()
    page.mouse.wheel(0, 1_000_000)
    drawn = page.evaluate("""async () => {
      await new Promise((drawn) => setTimeout(drawn, 200));
      const {frames, slowest, layoutTime, view} = radixkv.picture;
      return {frames, slowest, layoutTime, top: view.scrollTop};
    }""")
    assert drawn["top"] > 1000 and session.pixels()["cached"] > 10_000, drawn
    assert session.pixels()["next"] == 0, "what goes next is further up"
    page.click("#to-next")
    assert session.pixels()["next"] > 100
    page.mouse.move(0, 0)
    page.locator("#picture").focus()
    page.keyboard.press("Home")
    expect(page.locator("#detail")).to_contain_text("tokens 0 to")
    assert time.monotonic() - begun < HANG_SECONDS

    begun = time.monotonic()
    later = session.open()
    expect(later.locator("#tree-counts")).to_contain_text(counted)
    whole = time.monotonic() - begun
    assert whole < HANG_SECONDS, f"a new page took {whole:.1f} s"
    print(
        f"{nodes} nodes: {keys} keys, the slowest took {slowest * 1000:.0f} ms; "
        f"{drawn['frames']} frames, the slowest took {drawn['slowest']:.0f} ms, a layout "
        f"{drawn['layoutTime']:.0f} ms; a new page showed all after {whole * 1000:.0f} ms"
    )


def main() -> None:
    url, what, *file = sys.argv[1:]
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright, contextlib.closing(Session(playwright, url)) as session:
        if what == "chat":
            check_chat(session)
        elif what == "nodes":
            check_nodes(session)
        elif what in ("window", "state"):
            check_groups(session, what)
        else:
            take_picture(session, *file)


if __name__ == "__main__":
    main()
