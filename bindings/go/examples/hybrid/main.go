// A chat with a hybrid model, in Go: full attention, a sliding window and a recurrent state, each
// with pages of its own, over one prefix cache. The same loop stands in the repository's examples
// folder in C, C++ and Rust, and each prints the same text.
//
//	go run ./examples/hybrid
package main

import (
	"fmt"

	rkv "github.com/radixkv/radixkv/bindings/go"
)

// states is the memory of the states, by page. K and V of the others are left to the imagination.
var states [8]uint32

func copyState(one rkv.PageCopy) { states[one.TargetPage] = states[one.SourcePage] }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// serve takes a system prompt of 100 tokens, then a question of one's own.
func serve(cache *rkv.Cache, name string, question, length int) {
	ids := make([]uint32, length)
	for i := 100; i < length; i++ {
		ids[i] = uint32(question + i)
	}
	sequence, info, err := cache.Begin(rkv.BeginArgs{Tokens: rkv.Text(ids)})
	if err != nil {
		panic(err)
	}
	defer sequence.Release()

	state, at := &states[must(sequence.GroupRow(2))[0]], info.CachedPositionCount
	if at == 0 {
		*state = 1
	}
	// Chunks end where begin says: there the states are saved.
	for _, end := range append(info.CheckpointAt[:], length) {
		if end <= at {
			continue
		}
		// What it waits for: states, since the others are shared as whole pages.
		must(sequence.CarryOutCopies(copyState))
		for ; at < end; at++ {
			*state = (*state*31 + ids[at]) % 1000003
		}
		must(sequence.Publish(at))
		if at < length {
			must(sequence.Checkpoint())
		}
	}
	fmt.Printf("%s: %d tokens, %d known, %d reused; state %d\n", name, length,
		info.KnownPositionCount, info.CachedPositionCount, *state)
}

func main() {
	table := must(rkv.NewPageTable(rkv.PageTableConfig{
		Groups:         []rkv.GroupConfig{rkv.FullGroup(0), rkv.WindowGroup(1, 64), rkv.StateGroup(2)},
		PoolPageCounts: []uint32{65, 33, 8},
	}))
	defer table.Close()
	cache := must(rkv.NewCache(table, rkv.CacheConfig{}))
	defer cache.Close()
	serve(cache, "A", 1000, 130)
	serve(cache, "B", 2000, 145)
	serve(cache, "C", 3000, 160)
	serve(cache, "A, next turn", 1000, 175)
}
