// A chat with a hybrid model, in Go: full attention, a sliding window and a recurrent state, each
// with pages of its own, over one prefix cache. The same loop stands in the repository's examples
// folder in C, C++ and Rust, and each prints the same text.
//
//	go run ./examples/hybrid
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

const (
	full = iota
	window
	state
)

func main() { tell(os.Stdout) }

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type engine struct {
	out   io.Writer
	cache *radixkv.Cache
	// states is their memory, by page. K and V of the others are left to the imagination.
	states [8]uint64
}

// serve takes a system prompt of 100 tokens, then a question of one's own.
func (e *engine) serve(name string, question, length uint32) {
	var ids []uint32
	for i := uint32(0); i < 100+length; i++ {
		if i < 100 {
			ids = append(ids, 1+i)
		} else {
			ids = append(ids, question+i-100)
		}
	}
	sequence, info, err := e.cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(ids)})
	must(err)
	e.copyStates(sequence)

	row, err := sequence.GroupRow(state)
	must(err)
	at, saved, now := info.CachedPositionCount, 0, &e.states[row[0]]
	if at == 0 {
		*now = 0
	}
	for at < len(ids) {
		// Chunks end where begin says: there the states are saved.
		end, saves := len(ids), false
		for i := len(info.CheckpointAt) - 1; i >= 0; i-- {
			if info.CheckpointAt[i] > at {
				end, saves = info.CheckpointAt[i], true
			}
		}
		for ; at < end; at++ {
			*now = (*now*31 + uint64(ids[at])) % 1000003
		}
		_, err = sequence.Publish(at)
		must(err)
		if saves {
			copyCount, err := sequence.Checkpoint()
			must(err)
			e.copyStates(sequence)
			saved += copyCount
		}
	}
	fmt.Fprintf(e.out, "%s: %d tokens, %d known, %d reused; %d states saved; state %d\n", name,
		len(ids), info.KnownPositionCount, info.CachedPositionCount, saved, *now)
	must(sequence.Release())
}

// copyStates carries out what a sequence waits for, if anything: states, since the others are
// shared as whole pages.
func (e *engine) copyStates(sequence radixkv.Sequence) {
	copies, err := sequence.Copies()
	must(err)
	for _, one := range copies {
		e.states[one.TargetPage] = e.states[one.SourcePage]
	}
	if len(copies) > 0 {
		must(sequence.ConfirmCopies())
	}
}

func tell(out io.Writer) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: 16,
		Groups: []radixkv.GroupConfig{
			{Kind: radixkv.GroupFull, Pool: full},
			{Kind: radixkv.GroupWindow, Pool: window, Window: 64},
			{Kind: radixkv.GroupState, Pool: state},
		},
		PoolPageCounts: []uint32{65, 33, 8},
	})
	must(err)
	defer table.Close()
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
	must(err)
	defer cache.Close()
	e := &engine{out: out, cache: cache}
	e.serve("A", 1000, 30)
	e.serve("B", 2000, 45)
	e.serve("C", 3000, 60)
	e.serve("A, next turn", 1000, 75)
	e.serve("B again", 2000, 45)
}
