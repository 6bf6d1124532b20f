package radixkv_test

import (
	"errors"
	"strings"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// bench is a page table with a cache on it. Both are audited and closed when the test ends.
type bench struct {
	testing.TB
	table *radixkv.PageTable
	cache *radixkv.Cache
}

var base radixkv.Namespace

func newBench(t testing.TB, pageSize, pageCount uint32, flags radixkv.CacheFlags) *bench {
	t.Helper()
	return newBenchWith(t, pageSize, pageCount, radixkv.CacheConfig{Flags: flags})
}

func newBenchWith(
	t testing.TB, pageSize, pageCount uint32, config radixkv.CacheConfig,
) *bench {
	t.Helper()
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: pageSize, PageCount: pageCount, SlotCount: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := radixkv.NewCache(table, config)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, table, cache}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		b.sound()
		must(t, cache.Close())
		must(t, table.Close())
	})
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants demands one status, and a message that says something.
func wants(t testing.TB, err error, status radixkv.Status) *radixkv.Error {
	t.Helper()
	var e *radixkv.Error
	if !errors.Is(err, status) || !errors.As(err, &e) {
		t.Fatalf("want %v, got %v", status, err)
	}
	if e.Message == "" {
		t.Fatalf("%v comes without a message", status)
	}
	return e
}

// names demands one status, and a message that has a word, e.g. the argument's name.
func names(t testing.TB, err error, status radixkv.Status, word string) {
	t.Helper()
	if e := wants(t, err, status); !strings.Contains(e.Message, word) {
		t.Fatalf("%q does not say %q", e.Message, word)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func equalSlices[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
}

// sound is K19: every page in exactly one state, by the sum and page by page.
func (b *bench) sound() radixkv.PageTableStats {
	b.Helper()
	stats, err := b.table.Stats()
	must(b, err)
	equal(b, "free + cached + private + outside", stats.FreePageCount+stats.CachedPageCount+
		stats.PrivatePageCount+stats.OutsidePageCount, stats.TotalPageCount)
	must(b, b.table.Check())
	must(b, b.cache.Check())
	return stats
}

// run is count ascending ids from first on.
func run(first, count int) []uint32 {
	ids := make([]uint32, count)
	for i := range ids {
		ids[i] = uint32(first + i)
	}
	return ids
}

func join(parts ...[]uint32) []uint32 {
	var all []uint32
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

func (b *bench) pages(count int) []uint32 {
	b.Helper()
	pages := make([]uint32, count)
	must(b, b.table.AllocatePages(pages))
	return pages
}

// store publishes the whole pages of tokens in new pages.
func (b *bench) store(namespace radixkv.Namespace, tokens radixkv.Tokens) (
	radixkv.NodeID, []uint32,
) {
	b.Helper()
	positions, err := tokens.PositionCount()
	must(b, err)
	stats, err := b.table.Stats()
	must(b, err)
	pages := b.pages(positions / int(stats.PageSize))
	made, err := b.cache.Insert(
		radixkv.InsertArgs{Namespace: namespace, Tokens: tokens, Pages: pages}, nil)
	must(b, err)
	equal(b, "claimed pages", made.ClaimedPageCount, len(pages))
	return made.Node, pages
}

func (b *bench) match(ids []uint32) (radixkv.Match, []uint32) {
	b.Helper()
	pages := make([]uint32, len(ids))
	found, err := b.cache.Match(base, radixkv.Text(ids), 0, pages)
	must(b, err)
	return found, pages[:found.PageCount]
}

func (b *bench) probe(namespace radixkv.Namespace, ids []uint32) int {
	b.Helper()
	tokens, positions, err := b.cache.Probe(namespace, radixkv.Text(ids))
	must(b, err)
	equal(b, "positions of text", positions, tokens)
	return positions
}

func (b *bench) info(node radixkv.NodeID) radixkv.NodeInfo {
	b.Helper()
	info, err := b.cache.NodeInfo(node)
	must(b, err)
	return info
}

// copyOf is the page copy that a sequence waits for; none is the zero value.
func (b *bench) copyOf(sequence radixkv.Sequence) radixkv.PageCopy {
	b.Helper()
	copies, err := sequence.Copies()
	must(b, err)
	if len(copies) == 0 {
		return radixkv.PageCopy{}
	}
	return copies[0]
}

func (b *bench) lock(node radixkv.NodeID) radixkv.LockID {
	b.Helper()
	lock, err := b.cache.Lock(node)
	must(b, err)
	return lock
}

func (b *bench) begin(ids []uint32) (radixkv.Sequence, radixkv.SequenceInfo) {
	b.Helper()
	sequence, state, err := b.cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(ids)})
	must(b, err)
	equal(b, "id of the state", state.Sequence, sequence.ID())
	return sequence, state
}

func (b *bench) row(slot uint32) []uint32 {
	b.Helper()
	count, err := b.table.Row(slot, 0, nil)
	must(b, err)
	pages := make([]uint32, count)
	again, err := b.table.Row(slot, 0, pages)
	must(b, err)
	equal(b, "length of the row", again, count)
	return pages
}
