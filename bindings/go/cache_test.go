package radixkv_test

import (
	"encoding/json"
	"strings"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// K05
func TestMatchFindsTheLongestPrefix(t *testing.T) {
	stored := run(0, 12)
	cases := []struct {
		name      string
		flags     radixkv.CacheFlags
		query     []uint32
		pages     int
		positions int
	}{
		{"empty query", 0, nil, 0, 0},
		{"miss", 0, run(100, 12), 0, 0},
		{"exact hit", 0, stored, 3, 12},
		{"beyond the end", 0, run(0, 40), 3, 12},
		{"at a page boundary", 0, join(run(0, 8), run(100, 4)), 2, 8},
		{"inside a page", 0, join(run(0, 6), run(100, 4)), 1, 6},
		{"inside the first page", 0, join(run(0, 3), run(100, 4)), 0, 3},
		{"query shorter than a page", 0, run(0, 2), 0, 2},
		{"whole pages only", radixkv.CacheWholePages, join(run(0, 6), run(100, 4)), 1, 4},
		{"whole pages only, short", radixkv.CacheWholePages, run(0, 3), 0, 0},
		{"an id that no text has", 0, []uint32{0, 1, 2, radixkv.TextIDLimit}, 0, 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 4, 16, c.flags)
			empty, _ := b.match(c.query)
			equal(t, "match in an empty cache", empty, radixkv.Match{})

			_, pages := b.store(base, radixkv.Text(stored))
			equal(t, "probe", b.probe(base, c.query), c.positions)
			found, foundPages := b.match(c.query)
			equalSlices(t, "pages", foundPages, pages[:c.pages])
			equal(t, "positions", found.PositionCount, c.positions)
			equal(t, "tokens", found.TokenCount, c.positions)
			equal(t, "a node", found.Node != 0, c.pages > 0)
			rest := c.positions - 4*c.pages
			equal(t, "partial positions", found.PartialPositionCount, rest)
			equal(t, "a partial node", found.PartialNode != 0, rest > 0)
			if rest > 0 {
				equal(t, "partial page", found.PartialPage, pages[c.pages])
			}
			if c.pages > 0 {
				equal(t, "end of the node", b.info(found.Node).EndPosition, 4*c.pages)
			}
		})
	}
}

// K05, M01: a slice that is too short is refused before anything changes.
func TestMatchIntoAShortSlice(t *testing.T) {
	b := newBench(t, 4, 16, 0)
	node, pages := b.store(base, radixkv.Text(run(0, 12)))
	before, err := b.cache.Stats()
	must(t, err)
	short := []uint32{77}
	found, err := b.cache.Match(base, radixkv.Text(run(0, 12)), radixkv.MatchLock, short)
	wants(t, err, radixkv.BufferTooSmall)
	equal(t, "match", found, radixkv.Match{PageCount: 3})
	equal(t, "slice", short[0], 77)
	after, err := b.cache.Stats()
	must(t, err)
	equal(t, "statistics", after, before)
	equal(t, "locks", b.info(node).LockCount, 0)

	found, err = b.cache.Match(base, radixkv.Text(run(0, 12)), radixkv.MatchLock, nil)
	must(t, err)
	equal(t, "pages without a slice", found.PageCount, len(pages))
	must(t, b.cache.Unlock(found.Lock))
}

// K06
func TestMatchSplitsANode(t *testing.T) {
	b := newBench(t, 4, 16, 0)
	deep, pages := b.store(base, radixkv.Text(run(0, 12)))
	b.match(run(0, 12))
	lock := b.lock(deep)
	before := b.info(deep)

	found, _ := b.match(join(run(0, 4), run(100, 4)))
	if found.Node == deep {
		t.Fatal("the id of the deep end moved to the upper half")
	}
	upper, lower := b.info(found.Node), b.info(deep)
	equal(t, "pages of the upper half", upper.PageCount, 1)
	equal(t, "pages of the lower half", lower.PageCount, 2)
	equal(t, "positions of the upper half", upper.PositionCount, 4)
	equal(t, "positions of the lower half", lower.PositionCount, 8)
	equal(t, "parent", lower.Parent, found.Node)
	equal(t, "locks above", upper.LockCount, before.LockCount)
	equal(t, "locks below", lower.LockCount, before.LockCount)
	equal(t, "hits above", upper.HitCount, before.HitCount+1)
	equal(t, "hits below", lower.HitCount, before.HitCount)
	equal(t, "the split is no access of the tail", lower.LastAccess, before.LastAccess)

	children := make([]radixkv.NodeID, 1)
	count, err := b.cache.NodeChildren(found.Node, children)
	must(t, err)
	equalSlices(t, "children", children[:count], []radixkv.NodeID{deep})
	own := make([]uint32, 2)
	count, err = b.cache.NodePages(deep, own)
	must(t, err)
	equalSlices(t, "pages below", own[:count], pages[1:])
	count, err = b.cache.NodePages(deep, own[:1])
	wants(t, err, radixkv.BufferTooSmall)
	equal(t, "needed", count, 2)
	count, err = b.cache.NodePages(deep, nil)
	must(t, err)
	equal(t, "asked with nil", count, 2)
	must(t, b.cache.Unlock(lock))
}

// K07: an image of 729 positions stands before the place to go on from, so that token index and
// page index differ.
func TestInsertGoesOnFromAMatch(t *testing.T) {
	b := newBench(t, 16, 128, 0)
	digest, err := radixkv.ImageDigest([]byte("a cat"))
	must(t, err)
	prompt := func(text int) radixkv.Tokens {
		tokens, err := radixkv.BuildTokens(radixkv.Tokens{
			IDs: run(0, text), Items: []radixkv.Item{radixkv.Image(0, digest, 729)},
		})
		must(t, err)
		return tokens
	}
	node, pages := b.store(base, prompt(7)) // 736 positions
	found, err := b.cache.Match(base, prompt(23), 0, make([]uint32, 47))
	must(t, err)
	equal(t, "node", found.Node, node)
	equal(t, "tokens", found.TokenCount, 8)
	equal(t, "pages", found.PageCount, 46)

	args := radixkv.InsertArgs{
		Tokens: prompt(23), Pages: join(pages, b.pages(1)),
		FromNode: found.Node, FromTokenIndex: found.TokenCount, FromPageIndex: found.PageCount,
		Flags: radixkv.InsertLock,
	}
	made, err := b.cache.Insert(args, nil)
	must(t, b.cache.Unlock(made.Lock)) // fails unless there was one
	args.Flags = 0
	must(t, err)
	equal(t, "claimed", made.ClaimedPageCount, 1)
	equal(t, "end", b.info(made.Node).EndPosition, 752)

	again, err := b.cache.Insert(args, nil)
	must(t, err)
	equal(t, "again", again, radixkv.InsertResult{Node: made.Node, PageCount: 47})
	args.FromNode, args.FromTokenIndex, args.FromPageIndex = 0, 0, 0
	again, err = b.cache.Insert(args, nil)
	must(t, err)
	equal(t, "again from the root", again, radixkv.InsertResult{Node: made.Node, PageCount: 47})

	swapped := args
	swapped.FromNode, swapped.FromTokenIndex, swapped.FromPageIndex = found.Node, 46, 8
	_, err = b.cache.Insert(swapped, nil)
	wants(t, err, radixkv.InvalidArgument)
}

// K08: a lock goes along with what is inserted, and lets go of what a window has passed.
func TestInsertMovesALock(t *testing.T) {
	b := newBench(t, 4, 16, 0)
	pages := b.pages(3)
	args := radixkv.InsertArgs{
		Tokens: radixkv.Text(run(0, 4)), Pages: pages, Flags: radixkv.InsertLock,
	}
	made, err := b.cache.Insert(args, nil)
	must(t, err)
	lock := made.Lock
	for count := 2; count <= 3; count++ {
		args.Tokens, args.FromNode, args.Lock = radixkv.Text(run(0, 4*count)), made.Node, lock
		args.FromTokenIndex, args.FromPageIndex = 4*(count-1), count-1
		made, err = b.cache.Insert(args, nil)
		must(t, err)
		equal(t, "lock", made.Lock, lock)
	}
	must(t, b.cache.SlideLock(lock, 12))
	names(t, b.cache.SlideLock(lock, -1), radixkv.InvalidArgument, "position")
	args.FromNode, args.FromTokenIndex, args.FromPageIndex = 0, 0, 0
	_, err = b.cache.Insert(args, nil)
	wants(t, err, radixkv.InvalidArgument)
	must(t, b.cache.Unlock(lock))
	wants(t, b.cache.SlideLock(lock, 12), radixkv.StaleLock)
}

// K07: somebody else's pages stay, and Insert says which to map.
func TestInsertReportsDuplicates(t *testing.T) {
	b := newBench(t, 4, 16, 0)
	_, first := b.store(base, radixkv.Text(run(0, 8)))
	mine := b.pages(4)
	published := make([]uint32, 4)
	made, err := b.cache.Insert(
		radixkv.InsertArgs{Tokens: radixkv.Text(run(0, 14)), Pages: mine}, published)
	must(t, err)
	equal(t, "claimed", made.ClaimedPageCount, 1)
	equal(t, "duplicates", made.DuplicatePageCount, 2)
	equalSlices(t, "published", published, join(first, mine[2:]))
	for page, want := range map[uint32]bool{
		first[0]: true, mine[0]: false, mine[2]: true, mine[3]: false, 0: false, 4000: false,
	} {
		owned, err := b.cache.ContainsPage(page)
		must(t, err)
		equal(t, "owned", owned, want)
	}
	must(t, b.table.FreePages([]uint32{mine[0], mine[1], mine[3]}))

	short, err := b.cache.Insert(radixkv.InsertArgs{Tokens: radixkv.Text(run(50, 3))}, nil)
	must(t, err)
	equal(t, "less than a page", short, radixkv.InsertResult{})
}

// K08
func TestLocks(t *testing.T) {
	b := newBench(t, 4, 16, 0)
	other := newBench(t, 4, 16, 0)
	parent, _ := b.store(base, radixkv.Text(run(0, 4)))
	child, _ := b.store(base, radixkv.Text(run(50, 8)))
	deeper := b.pages(2)
	found, pages := b.match(run(0, 4))
	made, err := b.cache.Insert(radixkv.InsertArgs{
		Tokens: radixkv.Text(run(0, 12)), Pages: join(pages, deeper),
		FromNode: found.Node, FromTokenIndex: 4, FromPageIndex: 1,
	}, nil)
	must(t, err)

	first, second := b.lock(made.Node), b.lock(made.Node)
	equal(t, "locks of the node", b.info(made.Node).LockCount, 2)
	equal(t, "locks of its parent", b.info(parent).LockCount, 1)
	stats := b.sound()
	equal(t, "reclaimable", stats.ReclaimablePageCount, 2)

	evicted := make([]uint32, 16)
	count, err := b.cache.Evict(16, evicted)
	must(t, err)
	equal(t, "evicted", count, 2)
	_, err = b.cache.NodeInfo(child)
	wants(t, err, radixkv.StaleNode)

	lock := func(b *bench, node radixkv.NodeID) func() error {
		return func() error { _, err := b.cache.Lock(node); return err }
	}
	cases := []struct {
		name string
		do   func() error
		want radixkv.Status
	}{
		{"lock a stale node", lock(b, child), radixkv.StaleNode},
		{"lock no node", lock(b, 0), radixkv.StaleNode},
		{"lock another cache's node", lock(other, made.Node), radixkv.StaleNode},
		{"undo no lock", func() error { return b.cache.Unlock(0) }, radixkv.StaleLock},
		{"undo another cache's lock",
			func() error { return other.cache.Unlock(first) }, radixkv.StaleLock},
	}
	for _, c := range cases {
		before, err := b.cache.Dump(radixkv.DumpJSON)
		must(t, err)
		wants(t, c.do(), c.want)
		after, err := b.cache.Dump(radixkv.DumpJSON)
		must(t, err)
		equal(t, c.name, after, before)
	}

	must(t, b.cache.Unlock(first))
	equal(t, "one lock is left", b.info(parent).LockCount, 1)
	wants(t, b.cache.Unlock(first), radixkv.StaleLock)
	must(t, b.cache.Unlock(second))
	equal(t, "reclaimable", b.sound().ReclaimablePageCount, 3)
}

// K11
func TestNamespacesShareNothing(t *testing.T) {
	digest := radixkv.Digest{9}
	cases := []struct {
		name      string
		namespace radixkv.Namespace
	}{
		{"default", base},
		{"LoRA 0 is a real one", base.WithLoRA(0)},
		{"LoRA 1", base.WithLoRA(1)},
		{"image", base.WithImage(digest)},
		{"image of zeros", base.WithImage(radixkv.Digest{})},
		{"LoRA and image", base.WithLoRA(1).WithImage(digest)},
		{"salt", radixkv.Namespace{Salt: [32]byte{31: 1}}},
		{"epoch", radixkv.Namespace{Epoch: 1}},
	}
	b := newBench(t, 4, 32, 0)
	namespaces := func() int {
		stats, err := b.cache.Stats()
		must(t, err)
		return int(stats.NamespaceCount)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			equal(t, "probe before", b.probe(c.namespace, run(0, 8)), 0)
			found, err := b.cache.Match(c.namespace, radixkv.Text(run(0, 8)), 0, nil)
			must(t, err)
			equal(t, "match before", found, radixkv.Match{})
			equal(t, "a match creates none", namespaces(), i)
			b.store(c.namespace, radixkv.Text(run(0, 8)))
			equal(t, "namespaces", namespaces(), i+1)
			equal(t, "probe after", b.probe(c.namespace, run(0, 8)), 8)
		})
	}

	evicted, err := b.cache.Evict(1000, nil)
	must(t, err)
	equal(t, "evicted", evicted, 2*len(cases))
	equal(t, "the last page takes the namespace along", namespaces(), 0)
	b.store(base.WithLoRA(0), radixkv.Text(run(0, 8)))
	equal(t, "inserting recreates it", namespaces(), 1)
	listed, err := b.cache.Namespaces()
	must(t, err)
	equalSlices(t, "the namespaces", listed, []radixkv.Namespace{base.WithLoRA(0)})

	for name, bad := range map[string]radixkv.Namespace{
		"LoRAID without its flag":      {LoRAID: 1},
		"ImageDigest without its flag": {ImageDigest: digest},
		"unknown flag":                 {Flags: 1 << 7},
	} {
		_, _, err := b.cache.Probe(bad, radixkv.Text(run(0, 8)))
		e := wants(t, err, radixkv.InvalidArgument)
		if !strings.Contains(e.Message, "space.") {
			t.Errorf("%s: %q does not name the argument", name, e.Message)
		}
	}
}

// K09: the page that was used longest ago goes first, in the order that Evict reports.
func TestEvictionOrder(t *testing.T) {
	b := newBench(t, 4, 16, 0)
	_, old := b.store(base, radixkv.Text(run(0, 8)))
	_, fresh := b.store(base, radixkv.Text(run(100, 8)))
	b.match(run(0, 8)) // now `fresh` is the older one

	evicted := make([]uint32, 3)
	count, err := b.cache.Evict(10, evicted)
	must(t, err)
	equal(t, "no more than the slice holds", count, 3)
	equalSlices(t, "order", evicted, []uint32{fresh[1], fresh[0], old[1]})
	equal(t, "what is left", b.probe(base, run(0, 8)), 4)
	_, err = b.cache.Evict(-1, nil)
	wants(t, err, radixkv.InvalidArgument)
}

func TestStatsAndDump(t *testing.T) {
	b := newBench(t, 4, 16, 0)
	b.store(base, radixkv.Text(run(0, 8)))
	b.match(join(run(0, 6), run(100, 2)))
	stats, err := b.cache.Stats()
	must(t, err)
	equal(t, "cached", stats.CachedPageCount, 2)
	equal(t, "reclaimable", stats.ReclaimablePageCount, 2)
	equal(t, "nodes", stats.NodeCount, 2)
	equal(t, "lookups", stats.LookupCount, 1)
	equal(t, "asked for", stats.LookupPositionCount, 8)
	equal(t, "found", stats.HitPositionCount, 6)
	equal(t, "found in part of a page", stats.PartialHitPositionCount, 2)
	equal(t, "inserted", stats.InsertedPageCount, 2)
	if stats.IndexBytes == 0 {
		t.Error("an index without bytes")
	}

	text, err := b.cache.Dump(radixkv.DumpJSON)
	must(t, err)
	if !json.Valid([]byte(text)) {
		t.Errorf("not JSON: %s", text)
	}
	text, err = b.cache.Dump(radixkv.DumpDOT)
	must(t, err)
	if !strings.HasPrefix(text, "digraph") {
		t.Errorf("not a digraph: %s", text)
	}
	_, err = b.cache.Dump(7)
	wants(t, err, radixkv.InvalidArgument)
}

// K11: what is cleared is gone for all but its holder.
func TestClear(t *testing.T) {
	b := newBench(t, 4, 33, 0)
	first, _ := b.begin(run(1, 16))
	_, err := first.Publish(16)
	must(t, err)
	made, err := b.cache.Clear(radixkv.Namespace{Epoch: 1}, radixkv.ClearEpoch)
	must(t, err)
	equal(t, "namespaces of another epoch", made.NamespaceCount, 0)
	made, err = b.cache.Clear(radixkv.Namespace{}, radixkv.ClearNamespace)
	must(t, err)
	equal(t, "namespaces", made.NamespaceCount, 1)
	equal(t, "freed pages", made.FreedPageCount, 0)
	equal(t, "found tokens", b.probe(radixkv.Namespace{}, run(1, 16)), 0)
	must(t, first.Release())
	equal(t, "cached pages", b.sound().CachedPageCount, 0)
	_, err = b.cache.Clear(radixkv.Namespace{}, 0)
	wants(t, err, radixkv.InvalidArgument)
	_, err = b.cache.Clear(radixkv.Namespace{}, radixkv.ClearEverything)
	must(t, err)
}
