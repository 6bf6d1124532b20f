package radixkv_test

import (
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

const (
	windowGroup = 1
	stateGroup  = 2
)

// newHybrid is full attention, a window of 9 and states, each with a pool of its own.
func newHybrid(t *testing.T) *bench {
	t.Helper()
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: 4,
		Groups: []radixkv.GroupConfig{
			radixkv.FullGroup(0),
			radixkv.WindowGroup(windowGroup, 9),
			radixkv.StateGroup(stateGroup),
		},
		PoolPageCounts: []uint32{41, 21, 6},
	})
	must(t, err)
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
	must(t, err)
	b := &bench{t, table, cache}
	t.Cleanup(func() {
		must(t, table.Check())
		must(t, cache.Check())
		must(t, cache.Close())
		must(t, table.Close())
	})
	return b
}

func (b *bench) poolPages(pool, count int) []uint32 {
	b.Helper()
	pages := make([]uint32, count)
	must(b, b.table.AllocatePoolPages(pool, pages))
	return pages
}

// G02, G03, G06: a lookup ends where every group can, says what each costs, and keeps what it
// needs.
func TestGroups(t *testing.T) {
	b := newHybrid(t)
	tokens := radixkv.Text(run(1, 40))
	window, states := b.poolPages(windowGroup, 10), make([]uint32, 10)
	states[4] = b.poolPages(stateGroup, 1)[0]
	published := make([]uint32, 10)
	made, err := b.cache.Insert(radixkv.InsertArgs{
		Tokens: tokens, Pages: b.pages(10), Flags: radixkv.InsertLock,
		Groups: []radixkv.GroupRow{
			{Group: windowGroup, Pages: window},
			{Group: stateGroup, Pages: states, PublishedPages: published},
		},
	}, nil)
	must(t, err)
	equal(t, "claimed pages", made.ClaimedPageCount, 10)
	equal(t, "claimed pages of groups", made.ClaimedGroupPageCount, 11)
	equal(t, "duplicates of groups", made.DuplicateGroupPageCount, 0)
	equalSlices(t, "published states", published, states)
	must(t, b.cache.Unlock(made.Lock))

	found, err := b.cache.Match(base, tokens, radixkv.MatchLock, nil)
	must(t, err)
	equal(t, "positions", found.PositionCount, 20)
	equal(t, "known positions", found.KnownPositionCount, 40)
	equal(t, "limiting group", found.LimitingGroup, stateGroup)
	equal(t, "checkpoints", found.CheckpointAt, [2]int{36, 40})
	stats, err := b.cache.GroupStats()
	must(t, err)
	equal(t, "groups", len(stats), 3)
	equal(t, "statistics", stats[stateGroup], radixkv.GroupStats{
		Group: stateGroup, CachedPageCount: 1, LimitedLookupCount: 1, LostPositionCount: 20,
	})
	depths, err := b.cache.ProbeGroups(base, tokens)
	must(t, err)
	equal(t, "positions", depths.PositionCount, 20)
	equal(t, "known positions", depths.KnownPositionCount, 40)
	equal(t, "checkpoints", depths.CheckpointAt, [2]int{36, 40})
	equalSlices(t, "lost positions", depths.LostPositionCounts, []int{0, 0, 20})

	held, err := b.cache.LockedPages(found.Lock, windowGroup)
	must(t, err)
	equalSlices(t, "locked pages", held, []radixkv.LockedPage{
		{PageIndex: 3, Page: window[3]}, {PageIndex: 4, Page: window[4]},
	})
	_, err = b.cache.LockedPages(found.Lock, 0)
	names(t, err, radixkv.InvalidArgument, "group")
	_, err = b.cache.LockedPages(made.Lock, windowGroup)
	wants(t, err, radixkv.StaleLock)

	freed, gone, err := b.cache.EvictPool(windowGroup, 100, make([]radixkv.EvictedPage, 0, 64))
	must(t, err)
	equal(t, "freed pages", freed, 8)
	equal(t, "evicted pages", len(gone), 8)
	equal(t, "group of the first", gone[0].Group, windowGroup)
	freed, _, err = b.cache.EvictPool(stateGroup, 1, nil)
	must(t, err)
	equal(t, "freed states", freed, 0)
	must(t, b.cache.Unlock(found.Lock))
	freed, _, err = b.cache.EvictPool(stateGroup, 1, nil)
	must(t, err)
	equal(t, "freed states", freed, 1)
	_, _, err = b.cache.EvictPool(3, 1, nil)
	names(t, err, radixkv.InvalidArgument, "pool")
	_, _, err = b.cache.EvictPool(0, -1, nil)
	names(t, err, radixkv.InvalidArgument, "pageCount")
}

// G09: pages come from a pool, and the shortage names it.
func TestPools(t *testing.T) {
	b := newHybrid(t)
	pages := b.poolPages(stateGroup, 5)
	stats, err := b.table.PoolStats(stateGroup)
	must(t, err)
	equal(t, "private pages", stats.PrivatePageCount, 5)
	equal(t, "all pages", stats.TotalPageCount, 5)
	e := wants(t, b.table.AllocatePoolPages(stateGroup, make([]uint32, 1)), radixkv.OutOfPages)
	equal(t, "short pool", e.Shortage.Pool, stateGroup)
	wants(t, b.table.FreePoolPages(windowGroup, pages), radixkv.InvalidArgument)
	none := 1
	none <<= 32 // a variable: as a constant it is no int everywhere
	_, err = b.table.PoolStats(none)
	names(t, err, radixkv.InvalidArgument, "pool")
	must(t, b.table.FreePoolPages(stateGroup, pages))
	_, err = b.table.PoolStats(3)
	names(t, err, radixkv.InvalidArgument, "pool")
}

// M01: lists and rows that make no sense are refused, by name.
func TestWrongGroups(t *testing.T) {
	full := radixkv.GroupConfig{Kind: radixkv.GroupFull}
	for word, group := range map[string]radixkv.GroupConfig{
		"config.groups[1].kind":   {Kind: 9},
		"config.groups[1].window": {Kind: radixkv.GroupWindow},
		"config.groups[1].sinks":  {Kind: radixkv.GroupState, Sinks: 1},
		"config.groups[1].chunk":  {Kind: radixkv.GroupChunk},
		"config.groups[1].pool":   {Kind: radixkv.GroupFull, Pool: 1},
	} {
		_, err := radixkv.NewPageTable(radixkv.PageTableConfig{
			PageCount: 9, Groups: []radixkv.GroupConfig{full, group},
		})
		names(t, err, radixkv.InvalidArgument, word)
	}
	b := newHybrid(t)
	args := radixkv.InsertArgs{Tokens: radixkv.Text(run(1, 8)), Pages: b.pages(2)}
	args.Groups = []radixkv.GroupRow{{Group: windowGroup, Pages: []uint32{0, 7}}}
	_, err := b.cache.Insert(args, nil)
	names(t, err, radixkv.InvalidArgument, "args.groups[0]: pages[1] 7")
	args.Groups[0].PublishedPages = make([]uint32, 1)
	_, err = b.cache.Insert(args, nil)
	names(t, err, radixkv.InvalidArgument, "PublishedPages")
	args.Groups = make([]radixkv.GroupRow, radixkv.GroupLimit+1)
	_, err = b.cache.Insert(args, nil)
	names(t, err, radixkv.InvalidArgument, "args.group_count")
	args.Groups = nil
	made, err := b.cache.Insert(args, nil)
	must(t, err)
	equal(t, "claimed pages", made.ClaimedPageCount, 2)
}

// G05, G07: the second request takes a window of the first one's pages, and a copy of its state.
func TestSequencesWithGroups(t *testing.T) {
	b := newHybrid(t)
	args := radixkv.BeginArgs{Tokens: radixkv.Text(run(1, 24))}
	first, _, err := b.cache.Begin(args)
	must(t, err)
	_, err = first.Publish(20)
	must(t, err)
	published, err := first.Published()
	must(t, err)
	equal(t, "groups", len(published), 2)
	equal(t, "window", published[0],
		radixkv.PublishedGroup{Group: windowGroup, ClaimedPageCount: 5})
	equal(t, "state", published[1], radixkv.PublishedGroup{Group: stateGroup})
	count, err := first.Checkpoint()
	must(t, err)
	equal(t, "copies", count, 1)
	var done []radixkv.PageCopy
	carryOut := func(one radixkv.PageCopy) { done = append(done, one) }
	for _, want := range []int{1, 0} { // the second time none is open, and none is confirmed
		count, err = first.CarryOutCopies(carryOut)
		must(t, err)
		equal(t, "carried out", count, want)
	}
	second, info, err := b.cache.Begin(args)
	must(t, err)
	equal(t, "cached positions", info.CachedPositionCount, 20)
	copies, err := second.Copies()
	must(t, err)
	state, err := second.GroupRow(stateGroup)
	must(t, err)
	equal(t, "target", copies[0].TargetPage, state[0])
	equal(t, "group", copies[0].Group, stateGroup)
	_, err = second.CarryOutCopies(carryOut)
	must(t, err)
	equal(t, "calls", len(done), 2)
	equal(t, "the second one", done[1], copies[0])
	equal(t, "what was saved", done[1].SourcePage, done[0].TargetPage)
	names(t, second.ConfirmCopies(), radixkv.InvalidState, "")
	must(t, second.Slide(24))
	row, err := second.GroupRow(windowGroup)
	must(t, err)
	equal(t, "places", len(row), 6)
	equal(t, "a page that has passed", row[3], 0)
	must(t, second.Release())
	must(t, first.Release())
	_, err = first.CarryOutCopies(carryOut)
	names(t, err, radixkv.StaleSequence, "sequence")
}

// G01: each kind by its name.
func TestKindsOfGroups(t *testing.T) {
	for _, each := range []struct{ got, want radixkv.GroupConfig }{
		{radixkv.FullGroup(0), radixkv.GroupConfig{Kind: radixkv.GroupFull}},
		{radixkv.WindowGroup(1, 9),
			radixkv.GroupConfig{Kind: radixkv.GroupWindow, Pool: 1, Window: 9}},
		{radixkv.ChunkGroup(2, 8), radixkv.GroupConfig{Kind: radixkv.GroupChunk, Pool: 2, Chunk: 8}},
		{radixkv.StateGroup(3), radixkv.GroupConfig{Kind: radixkv.GroupState, Pool: 3}},
	} {
		equal(t, "group", each.got, each.want)
	}
}

// G07, G08, G11: a path keeps one state, drafts are taken back with theirs, and what is left at the
// end is found.
func TestStatesOfSequences(t *testing.T) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: 4, SlotCount: 4,
		Groups: []radixkv.GroupConfig{
			{Kind: radixkv.GroupFull},
			{Kind: radixkv.GroupState, Pool: 1, DraftStateCount: 1},
		},
		PoolPageCounts: []uint32{40, 9},
	})
	must(t, err)
	defer table.Close()
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{CheckpointLimit: 1})
	must(t, err)
	defer cache.Close()
	ids := run(1, 12)
	sequence, _, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(ids)})
	must(t, err)
	_, err = sequence.Publish(8)
	must(t, err)
	_, err = sequence.Checkpoint()
	must(t, err)
	must(t, sequence.ConfirmCopies())
	_, err = sequence.Publish(12)
	must(t, err)
	row, err := sequence.GroupRow(1)
	must(t, err)
	must(t, sequence.Append(radixkv.Text([]uint32{5, 6})))
	must(t, sequence.Truncate(14))
	moved, err := sequence.GroupRow(1)
	must(t, err)
	equal(t, "state", moved[0], row[1])
	must(t, sequence.Append(radixkv.Text([]uint32{7, 8})))
	must(t, sequence.Truncate(16))
	_, err = sequence.Publish(16)
	must(t, err)
	count, err := sequence.Donate()
	must(t, err)
	equal(t, "donated", count, 1)
	names(t, sequence.Release(), radixkv.StaleSequence, "")
	stats, err := cache.Stats()
	must(t, err)
	equal(t, "dropped", stats.DroppedCheckpointCount, 1)
	equal(t, "cached", stats.CachedPageCount, 4)
	pool, err := table.PoolStats(1)
	must(t, err)
	equal(t, "states", pool.CachedPageCount, 1)
	_, err = radixkv.NewCache(table, radixkv.CacheConfig{CheckpointLimit: 513})
	names(t, err, radixkv.InvalidArgument, "config.checkpoint_limit")
}

// A row that grows while it is read is read again.
func TestGroupRowWhileItGrows(t *testing.T) {
	const most = 30000
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: 1, PageCount: most + 1, SlotCount: 1,
	})
	must(t, err)
	defer table.Close()
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
	must(t, err)
	defer cache.Close()
	sequence, _, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(0, 1))})
	must(t, err)
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 1; i < most && err == nil; i++ {
			err = sequence.Append(radixkv.Text([]uint32{7}))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			must(t, err)
			row, err := sequence.GroupRow(0)
			must(t, err)
			equal(t, "pages", len(row), most)
			return
		default:
			_, err := sequence.GroupRow(0)
			must(t, err)
		}
	}
}
