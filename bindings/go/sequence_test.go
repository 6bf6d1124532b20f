package radixkv_test

import (
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// K14, M04: a begin that fails leaves locks, pages, slots and statistics as before.
func TestBeginIsATransaction(t *testing.T) {
	b := newBench(t, 4, 9, 0) // 8 pages, 4 slots
	node, _ := b.store(base, radixkv.Text(run(0, 8)))
	b.store(base, radixkv.Text(run(100, 4)))
	type world struct {
		pages radixkv.PageTableStats
		cache radixkv.CacheStats
		dump  string
	}
	look := func() world {
		cache, err := b.cache.Stats()
		must(t, err)
		dump, err := b.cache.Dump(radixkv.DumpJSON)
		must(t, err)
		return world{b.sound(), cache, dump}
	}
	refused := func(what string, prompt []uint32, reserve int, want radixkv.Status) *radixkv.Error {
		t.Helper()
		before := look()
		_, _, err := b.cache.Begin(radixkv.BeginArgs{
			Tokens: radixkv.Text(prompt), ReservePositionCount: reserve,
		})
		e := wants(t, err, want)
		equal(t, what, look(), before)
		return e
	}

	holder := b.pages(4) // 1 page is free now, 3 are reclaimable
	e := refused("out of pages", run(0, 24), 0, radixkv.OutOfPages)
	if e.Shortage == nil {
		t.Fatal("out of pages without the numbers")
	}
	equal(t, "needed beyond the 2 shared", e.Shortage.NeededPageCount, 4)
	equal(t, "private", e.Shortage.PrivatePageCount, 4)
	refused("out of pages by the reserve", run(0, 9), 20, radixkv.OutOfPages)
	refused("longer than a row may be", run(0, 33), 0, radixkv.InvalidArgument)
	refused("an absurd reserve", run(0, 9), -1, radixkv.InvalidArgument)
	refused("an empty prompt", nil, 0, radixkv.InvalidArgument)
	must(t, b.table.FreePages(holder))

	var sequences []radixkv.Sequence
	for i := 0; i < 4; i++ {
		sequence, _ := b.begin(run(0, 3))
		sequences = append(sequences, sequence)
	}
	refused("out of slots", run(0, 9), 0, radixkv.OutOfSlots)
	for _, sequence := range sequences {
		must(t, sequence.Release())
	}
	equal(t, "locks", b.info(node).LockCount, 0)
}

// J08: pages come chunk by chunk; a shortage in the middle changes nothing and says so.
func TestAllocateByChunk(t *testing.T) {
	b := newBench(t, 4, 13, 0) // 12 pages
	sequence, state, err := b.cache.Begin(radixkv.BeginArgs{
		Tokens: radixkv.Text(run(0, 40)), AllocatePositionCount: 8,
	})
	must(t, err)
	equal(t, "pages of the first chunk", state.PageCount, 2)
	_, err = sequence.Publish(9)
	wants(t, err, radixkv.InvalidArgument)
	must(t, sequence.Allocate(16))
	published, err := sequence.Publish(16)
	must(t, err)
	equal(t, "claimed", published.ClaimedPageCount, 4)

	held := b.pages(3)
	before := b.sound()
	e := wants(t, sequence.Allocate(40), radixkv.OutOfPages)
	equal(t, "needed", e.Shortage.NeededPageCount, 6)
	equal(t, "pages", b.sound(), before)
	wants(t, sequence.Allocate(41), radixkv.InvalidArgument)
	wants(t, sequence.Allocate(-1), radixkv.InvalidArgument)
	must(t, b.table.FreePages(held))
	must(t, sequence.Allocate(40))
	state, err = sequence.Info()
	must(t, err)
	equal(t, "pages in the end", state.PageCount, 10)
	_, err = sequence.Publish(40)
	must(t, err)

	child, state, err := b.cache.Continue(radixkv.ContinueArgs{
		Flags: radixkv.ContinueRunning, Parent: sequence.ID(),
		Tokens: radixkv.Text(run(100, 8)), AllocatePositionCount: 44,
	})
	must(t, err)
	equal(t, "pages of the child", state.PageCount, 11)
	must(t, child.Release())
	must(t, sequence.Release())
	wants(t, sequence.Allocate(1), radixkv.StaleSequence)
	equal(t, "private", b.sound().PrivatePageCount, 0)
	_, _, err = b.cache.Begin(radixkv.BeginArgs{
		Tokens: radixkv.Text(run(0, 8)), AllocatePositionCount: -1,
	})
	names(t, err, radixkv.InvalidArgument, "AllocatePositionCount")
	_, _, err = b.cache.Continue(radixkv.ContinueArgs{
		Parent: sequence.ID(), AllTokens: radixkv.Text(run(0, 8)), AllocatePositionCount: -1,
	})
	names(t, err, radixkv.InvalidArgument, "AllocatePositionCount")
	_, _, _, err = b.cache.BeginMany([]radixkv.BeginArgs{
		{Tokens: radixkv.Text(run(0, 8)), AllocatePositionCount: -1},
	})
	names(t, err, radixkv.InvalidArgument, "AllocatePositionCount")
	_, err = b.table.CanReserve(radixkv.NoSlot, -1)
	names(t, err, radixkv.InvalidArgument, "positionCount")
}

// K15: at least one token is computed, and the cut is never inside an image.
func TestSomethingIsLeftToCompute(t *testing.T) {
	image := func(at int, text []uint32) radixkv.Tokens {
		return radixkv.Tokens{
			IDs: text, Items: []radixkv.Item{radixkv.Image(at, radixkv.Digest{1}, 6)},
		}
	}
	cases := []struct {
		name      string
		pageSize  uint32
		flags     radixkv.CacheFlags
		prompt    radixkv.Tokens
		positions int
		tokens    int
	}{
		{"text", 4, 0, radixkv.Text(run(0, 8)), 7, 7},
		{"text, whole pages", 4, radixkv.CacheWholePages, radixkv.Text(run(0, 8)), 4, 4},
		{"text, pages of one", 1, 0, radixkv.Text(run(0, 8)), 7, 7},
		{"image at the end", 4, 0, image(2, run(0, 3)), 2, 2},
		{"image at the end, pages of one", 1, 0, image(2, run(0, 3)), 2, 2},
		{"image at the end, whole pages", 4, radixkv.CacheWholePages, image(2, run(0, 3)), 0, 0},
		{"image before the end", 4, 0, image(0, run(0, 3)), 7, 2},
		{"nothing but an image", 2, 0, image(0, run(0, 1)), 0, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.pageSize, 32, c.flags)
			b.store(base, c.prompt)
			sequence, state, err := b.cache.Begin(radixkv.BeginArgs{Tokens: c.prompt})
			must(t, err)
			equal(t, "cached positions", state.CachedPositionCount, c.positions)
			equal(t, "cached tokens", state.CachedTokenCount, c.tokens)
			size := int(c.pageSize)
			equal(t, "shared pages", state.SharedPageCount, c.positions/size)
			copied := int(b.copyOf(sequence).PositionCount)
			equal(t, "positions to copy", copied, c.positions%size)
			equal(t, "pages", state.PageCount, (state.PositionCount+size-1)/size)
			b.sound()
			must(t, sequence.Release())
			b.sound()
		})
	}
}

// K16: two prefills of one prompt run at once. The second is remapped, and each keeps one lock.
func TestPublishRace(t *testing.T) {
	b := newBench(t, 4, 32, 0)
	first, firstState := b.begin(run(0, 10))
	second, secondState := b.begin(run(0, 10))
	equal(t, "nothing was cached yet", secondState.CachedPositionCount, 0)

	done, err := first.Publish(10)
	must(t, err)
	node := done.Node
	equal(t, "first", done, radixkv.PublishResult{
		ClaimedPageCount: 2, FirstRemappedIndex: 3, SharedPageCount: 2, Node: node,
	})
	before := b.sound().FreePageCount
	done, err = second.Publish(10)
	must(t, err)
	equal(t, "second", done, radixkv.PublishResult{
		RemappedPageCount: 2, FirstRemappedIndex: 0, SharedPageCount: 2, Node: node,
	})
	equal(t, "the duplicates are free", b.sound().FreePageCount, before+2)
	one, other := b.row(firstState.Slot), b.row(secondState.Slot)
	equalSlices(t, "shared pages", other[:2], one[:2])
	if one[2] == other[2] {
		t.Fatal("two sequences write to one page")
	}

	firstState, err = first.Info()
	must(t, err)
	equal(t, "the node of the state", firstState.Node, node)
	secondState, err = second.Info()
	must(t, err)
	equal(t, "node", secondState.Node, firstState.Node)
	equal(t, "one lock each", b.info(firstState.Node).LockCount, 2)
	again, err := second.Publish(10)
	must(t, err)
	equal(t, "publishing again claims nothing", again.ClaimedPageCount, 0)
	equal(t, "nor locks", b.info(firstState.Node).LockCount, 2)
	must(t, first.Release())
	equal(t, "one lock is left", b.info(firstState.Node).LockCount, 1)
	must(t, second.Release())
	equal(t, "reclaimable", b.sound().ReclaimablePageCount, 2)
}

// K17: a full hit publishes nothing; the last position lives in a private page.
func TestFullHit(t *testing.T) {
	b := newBench(t, 4, 32, 0)
	_, pages := b.store(base, radixkv.Text(run(0, 8)))
	sequence, state := b.begin(run(0, 8))
	open := b.copyOf(sequence)
	equal(t, "copy from", open.SourcePage, pages[1])
	row := b.row(state.Slot)
	equalSlices(t, "row", row, []uint32{pages[0], open.TargetPage})
	if owned, err := b.cache.ContainsPage(row[1]); err != nil || owned {
		t.Fatalf("the last position would be written to a shared page (%v)", err)
	}
	must(t, sequence.ConfirmCopies())
	done, err := sequence.Publish(8)
	must(t, err)
	equal(t, "claimed", done.ClaimedPageCount, 0)
	must(t, sequence.Release())
	stats := b.sound()
	equal(t, "private", stats.PrivatePageCount, 0)
	equal(t, "cached", stats.CachedPageCount, 2)
}

// K18
func TestRelease(t *testing.T) {
	b := newBench(t, 4, 32, 0)
	other := newBench(t, 4, 32, 0)
	sequence, state := b.begin(run(0, 10))
	foreign, _ := other.begin(run(0, 10))
	_, err := sequence.Publish(9)
	must(t, err)

	wants(t, b.table.FreeSlot(state.Slot), radixkv.InvalidState) // the sequence owns the slot
	wants(t, b.table.Reserve(state.Slot, 30), radixkv.InvalidState)
	for name, stranger := range map[string]radixkv.Sequence{
		"another cache's": b.cache.Sequence(foreign.ID()),
		"never begun":     b.cache.Sequence(1 << 60),
		"none":            b.cache.Sequence(0),
	} {
		t.Run(name, func(t *testing.T) { isStale(t, stranger) })
	}
	must(t, sequence.Release())
	isStale(t, sequence)
	stats := b.sound()
	equal(t, "private", stats.PrivatePageCount, 0)
	equal(t, "cached", stats.CachedPageCount, 2)
	equal(t, "reclaimable", stats.ReclaimablePageCount, 2)
	must(t, foreign.Release())
}

func isStale(t *testing.T, sequence radixkv.Sequence) {
	t.Helper()
	_, err := sequence.Info()
	wants(t, err, radixkv.StaleSequence)
	_, err = sequence.Publish(1)
	wants(t, err, radixkv.StaleSequence)
	wants(t, sequence.ConfirmCopies(), radixkv.StaleSequence)
	wants(t, sequence.Append(radixkv.Text([]uint32{1})), radixkv.StaleSequence)
	wants(t, sequence.Truncate(1), radixkv.StaleSequence)
	wants(t, sequence.Release(), radixkv.StaleSequence)
}

// K19, B07: chunked prefill, decode and release, with the sum of the states after each step.
func TestLifeOfASequence(t *testing.T) {
	b := newBench(t, 4, 32, 0)
	sequence, err := radixkv.Sequence{}, error(nil)
	steps := []struct {
		name    string
		do      func() error
		cached  uint64
		private uint64
	}{
		{"begin", func() error {
			sequence, _, err = b.cache.Begin(radixkv.BeginArgs{
				Tokens: radixkv.Text(run(0, 10)), ReservePositionCount: 3,
			})
			return err
		}, 0, 4},
		{"a chunk of 5", func() error { _, err := sequence.Publish(5); return err }, 1, 3},
		{"fewer than before", func() error { _, err := sequence.Publish(2); return err }, 1, 3},
		{"the rest", func() error { _, err := sequence.Publish(10); return err }, 2, 2},
		{"within the reserve",
			func() error { return sequence.Append(radixkv.Text(run(10, 6))) }, 2, 2},
		{"beyond it",
			func() error { return sequence.Append(radixkv.Text(run(16, 1))) }, 2, 3},
		{"refuse a draft", func() error { return sequence.Truncate(13) }, 2, 3},
		{"publish what was generated",
			func() error { _, err := sequence.Publish(13); return err }, 3, 2},
		{"release", func() error { return sequence.Release() }, 3, 0},
	}
	for _, step := range steps {
		must(t, step.do())
		stats := b.sound()
		equal(t, "cached after "+step.name, stats.CachedPageCount, step.cached)
		equal(t, "private after "+step.name, stats.PrivatePageCount, step.private)
	}
	equal(t, "found by the next one", b.probe(base, run(0, 20)), 12)

	again, state := b.begin(run(0, 20))
	wants(t, again.Truncate(state.SharedPageCount*4-1), radixkv.InvalidArgument)
	wants(t, again.Truncate(21), radixkv.InvalidArgument)
	wants(t, again.Truncate(-1), radixkv.InvalidArgument)
	_, err = again.Publish(21)
	wants(t, err, radixkv.InvalidArgument)
	_, err = again.Publish(-1)
	wants(t, err, radixkv.InvalidArgument)
	must(t, again.Append(radixkv.Tokens{
		IDs: []uint32{0}, Items: []radixkv.Item{radixkv.Image(0, radixkv.Digest{1}, 5)},
	}))
	wants(t, again.Truncate(22), radixkv.InvalidArgument) // inside the image
	holder := b.pages(10)
	e := wants(t, again.Append(radixkv.Text(run(20, 60))), radixkv.OutOfPages)
	if e.Shortage == nil {
		t.Fatal("out of pages without the numbers")
	}
	state, err = again.Info()
	must(t, err)
	equal(t, "positions", state.PositionCount, 25)
	must(t, b.table.FreePages(holder))
	must(t, again.Release())
}

// B08: a match that ends inside a page is taken over by copy.
func TestPartialPages(t *testing.T) {
	b := newBench(t, 4, 9, 0) // 8 pages
	_, first := b.store(base, radixkv.Text(run(0, 8)))
	b.store(base, radixkv.Text(run(200, 4)))

	prompt := join(run(0, 7), []uint32{100})
	found, _ := b.match(prompt)
	equal(t, "partial page", found.PartialPage, first[1])
	equal(t, "partial positions", found.PartialPositionCount, 3)

	sequence, state := b.begin(prompt)
	equal(t, "cached", state.CachedPositionCount, 7)
	equal(t, "to copy", state.CopyCount, 1)
	equal(t, "copy", b.copyOf(sequence), radixkv.PageCopy{
		SourcePage: first[1], TargetPage: b.row(state.Slot)[1], PositionCount: 3,
	})
	_, err := sequence.Publish(8)
	wants(t, err, radixkv.InvalidState) // the copy is open

	count, err := b.cache.Evict(100, nil)
	must(t, err)
	equal(t, "all but the path and the source go", count, 1)
	must(t, sequence.ConfirmCopies())
	wants(t, sequence.ConfirmCopies(), radixkv.InvalidState)
	state, err = sequence.Info()
	must(t, err)
	equal(t, "open copy", state.CopyCount, 0)
	count, err = b.cache.Evict(100, nil)
	must(t, err)
	equal(t, "the source goes after the copy", count, 1)
	_, err = sequence.Publish(8)
	must(t, err)
	equal(t, "published", b.probe(base, prompt), 8)
	must(t, sequence.Release())
}

// B08: of several children the one with the longest common start gives the copy; and with the flag
// there is none.
func TestPartialPageOfTheBestSibling(t *testing.T) {
	for _, flags := range []radixkv.CacheFlags{0, radixkv.CacheWholePages} {
		b := newBench(t, 8, 33, flags)
		var best uint32
		for common := 2; common <= 6; common += 2 {
			_, pages := b.store(base, radixkv.Text(join(run(0, common), run(100*common, 8-common))))
			best = pages[0]
		}
		found, _ := b.match(join(run(0, 6), run(1000, 8)))
		if flags == radixkv.CacheWholePages {
			equal(t, "match of whole pages", found, radixkv.Match{})
			continue
		}
		equal(t, "positions", found.PartialPositionCount, 6)
		equal(t, "page", found.PartialPage, best)
		equal(t, "its owner begins at the root", b.info(found.PartialNode).EndPosition, 8)
	}
}

// B09: a probe changes nothing.
func TestProbeChangesNothing(t *testing.T) {
	b := newBench(t, 4, 32, 0)
	node, _ := b.store(base, radixkv.Text(run(0, 12)))
	stats, err := b.cache.Stats()
	must(t, err)
	info := b.info(node)
	dump, err := b.cache.Dump(radixkv.DumpJSON)
	must(t, err)
	for _, ids := range [][]uint32{nil, run(0, 3), run(0, 8), run(0, 20), run(5, 5)} {
		b.probe(base, ids)
		b.probe(base.WithLoRA(3), ids)
	}
	after, err := b.cache.Stats()
	must(t, err)
	equal(t, "statistics", after, stats)
	equal(t, "node", b.info(node), info)
	again, err := b.cache.Dump(radixkv.DumpJSON)
	must(t, err)
	equal(t, "dump", again, dump)
}
