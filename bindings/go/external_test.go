package radixkv_test

import (
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// J07: the pages of the table are handed out by the program.
func TestExternalPool(t *testing.T) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: 4, PageCount: 11, Flags: radixkv.PageTableExternalPool,
	})
	must(t, err)
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
	must(t, err)
	b := &bench{t, table, cache}
	equal(t, "outside pages", b.sound().OutsidePageCount, 10)
	tokens := radixkv.Text(run(1, 12))
	first, second := []uint32{3, 1, 2}, []uint32{3, 8, 2}
	published := make([]uint32, 3)
	made, err := cache.Insert(radixkv.InsertArgs{Tokens: tokens, Pages: first}, published)
	must(t, err)
	equal(t, "claimed pages", made.ClaimedPageCount, 3)
	equalSlices(t, "published pages", published, first)

	again := radixkv.InsertArgs{Tokens: tokens, Pages: second}
	made, err = cache.Insert(again, published)
	must(t, err)
	equal(t, "duplicates", made.DuplicatePageCount, 1)
	equalSlices(t, "published pages", published, first)
	equal(t, "outside pages", b.sound().OutsidePageCount, 7)
	_, err = cache.Insert(again, nil)
	wants(t, err, radixkv.InvalidArgument)
	bad := radixkv.InsertArgs{Tokens: tokens, Pages: []uint32{4, 5, 1}}
	_, err = cache.Insert(bad, published)
	wants(t, err, radixkv.InvalidArgument)

	_, err = cache.Evict(1, nil)
	wants(t, err, radixkv.InvalidArgument)
	evicted := make([]uint32, 2)
	count, err := cache.Evict(5, evicted)
	must(t, err)
	equal(t, "evicted pages", count, 2)
	equalSlices(t, "evicted pages", evicted, []uint32{2, 1})
	equal(t, "outside pages", b.sound().OutsidePageCount, 9)

	wants(t, table.AllocatePages(make([]uint32, 1)), radixkv.Unsupported)
	_, err = table.AllocateSlot()
	wants(t, err, radixkv.Unsupported)
	_, _, err = cache.Begin(radixkv.BeginArgs{Tokens: tokens})
	wants(t, err, radixkv.Unsupported)
	must(t, cache.Close())
	stats, err := table.Stats()
	must(t, err)
	equal(t, "outside pages without the cache", stats.OutsidePageCount, 10)
	must(t, table.Close())
}
