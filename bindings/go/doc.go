// Package radixkv gives an LLM serving engine a prefix cache and paged KV memory: Go over the C ABI
// of libradixkv.
//
// A [PageTable] is a pool of physical pages and one row of pages per slot. A [Cache] is the prefix
// index over one page table. A [Sequence] lives in a cache, from [Cache.Begin] to
// [Sequence.Release]:
//
//	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{PageSize: 16, PageCount: 4096})
//	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
//	sequence, state, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(prompt)})
//	// Write the KV of the positions from state.CachedPositionCount on, then let others find it:
//	_, err = sequence.Publish(state.PositionCount)
//	err = sequence.Release()
//
// A [Runner] computes attention over the rows of a page table. A [Plan] says which positions a step
// computes; [Runner.AppendPrefill] does it, layer by layer.
//
// A [SnapshotCache] stands alone: states of models without paged KV, by the tokens that led to
// them.
//
// # Errors
//
// A failed call returns an [*Error] that carries a [Status] and the library's message, which names
// the argument. It changes nothing. Tell failures apart with errors.Is(err, radixkv.OutOfPages);
// a handle that was closed gives [ErrClosed]. A call over many items has a status for each, also
// when the error is about all of them; of a closed handle each is [InvalidState]. One that failed
// does not keep the others from being carried out.
//
// # Buffers
//
// Calls that report many values fill a slice of the caller, and so allocate nothing. The library
// reads and writes slices during the call only. Where a nil slice is allowed it says so.
//
// # Concurrency
//
// Every method may be called from any goroutine, Close included: it waits for the calls that are
// running, and calls that come later fail with [ErrClosed]. [SnapshotCache.Close] does not wait for
// what those calls free; [Cache.Close] is refused while copies go on that [Cache.Poll] gave.
package radixkv
