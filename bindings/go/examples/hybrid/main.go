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
	groups
)

const (
	pageSize   = 16
	windowSize = 64
	statePages = 7
)

func main() { tell(os.Stdout) }

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type engine struct {
	out   io.Writer
	table *radixkv.PageTable
	cache *radixkv.Cache
	// states is their memory, by page. K and V of the others are left to the imagination.
	states [statePages]uint64
}

func (e *engine) allocate(pool int) uint32 {
	page := make([]uint32, 1)
	must(e.table.AllocatePoolPages(pool, page))
	return page[0]
}

// step is the recurrent layers: the state after one more token.
func step(now uint64, token uint32) uint64 { return (now*31 + uint64(token)) % 1000003 }

func (e *engine) serve(name string, ids []uint32) {
	var space radixkv.Namespace
	tokens, pages := radixkv.Text(ids), (len(ids)+pageSize-1)/pageSize
	var rows, published [groups][]uint32
	for group := range rows {
		rows[group], published[group] = make([]uint32, pages), make([]uint32, pages)
	}
	// What each group costs of what is known; then the match, locked with all that it needs.
	depths, err := e.cache.ProbeGroups(space, tokens)
	must(err)
	match, err := e.cache.Match(space, tokens, radixkv.MatchLock, rows[full])
	must(err)
	var held, checkpoint []radixkv.LockedPage
	if match.Lock != 0 {
		held, err = e.cache.LockedPages(match.Lock, window)
		must(err)
		checkpoint, err = e.cache.LockedPages(match.Lock, state)
		must(err)
		defer func() { must(e.cache.Unlock(match.Lock)) }()
	}
	for _, page := range held {
		rows[window][page.PageIndex] = page.Page
	}
	// A checkpoint is copied, never written to: the next request wants it too.
	var now uint64
	if len(checkpoint) > 0 {
		now = e.states[checkpoint[0].Page]
	}

	for i := match.PageCount; i < pages; i++ {
		rows[full][i], rows[window][i] = e.allocate(full), e.allocate(window)
	}
	// Chunks end where the match says, and the states are saved there.
	for at := match.PositionCount; at < len(ids); at++ {
		now = step(now, ids[at])
		if at+1 == match.CheckpointAt[0] || at+1 == match.CheckpointAt[1] {
			page := e.allocate(state)
			rows[state][at/pageSize], e.states[page] = page, now
		}
	}

	done, err := e.cache.Insert(radixkv.InsertArgs{
		Tokens: tokens, Pages: rows[full],
		Groups: []radixkv.GroupRow{
			{Group: window, Pages: rows[window], PublishedPages: published[window]},
			{Group: state, Pages: rows[state], PublishedPages: published[state]},
		},
	}, published[full])
	must(err)
	// Whose page was not taken keeps it: for another one is published, or it is not full.
	for group, row := range rows {
		for i, page := range row {
			taken := published[group][i] == page && i < len(ids)/pageSize
			if page != 0 && !taken {
				must(e.table.FreePoolPages(group, []uint32{page}))
			}
		}
	}
	lost := depths.LostPositionCounts
	fmt.Fprintf(e.out, "%s: %d tokens, %d known, %d reused (full costs %d, window %d, state %d)\n",
		name, len(ids), depths.KnownPositionCount, match.PositionCount, lost[full], lost[window],
		lost[state])
	fmt.Fprintf(e.out, "   reads %d window pages and %d states, saves states at %d and %d\n",
		len(held), len(checkpoint), match.CheckpointAt[0], match.CheckpointAt[1])
	fmt.Fprintf(e.out, "   %d pages claimed, %d of other groups; state %d\n",
		done.ClaimedPageCount, done.ClaimedGroupPageCount, now)
}

func (e *engine) printPool(name string, pool int) {
	stats, err := e.table.PoolStats(pool)
	must(err)
	fmt.Fprintf(e.out, "   %s: %d free, %d cached, %d private\n", name, stats.FreePageCount,
		stats.CachedPageCount, stats.PrivatePageCount)
}

// prompt is a system prompt, then a question of one's own.
func prompt(question, length uint32) []uint32 {
	var ids []uint32
	for i := uint32(1); i <= 100; i++ {
		ids = append(ids, i)
	}
	for i := uint32(0); i < length; i++ {
		ids = append(ids, question+i)
	}
	return ids
}

func tell(out io.Writer) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: pageSize,
		Groups: []radixkv.GroupConfig{
			{Kind: radixkv.GroupFull, Pool: full},
			{Kind: radixkv.GroupWindow, Pool: window, Window: windowSize},
			{Kind: radixkv.GroupState, Pool: state},
		},
		PoolPageCounts: []uint32{65, 33, statePages},
	})
	must(err)
	defer table.Close()
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
	must(err)
	defer cache.Close()
	e := &engine{out: out, table: table, cache: cache}
	e.serve("A", prompt(1000, 30))
	e.serve("B", prompt(2000, 45))
	e.serve("C", prompt(3000, 60))
	e.serve("A, next turn", prompt(1000, 75))
	e.printPool("full", full)
	e.printPool("window", window)
	e.printPool("state", state)
	freed, _, err := cache.EvictPool(state, 3, nil)
	must(err)
	fmt.Fprintf(out, "%d states evicted, the least recently used\n", freed)
	e.serve("B again", prompt(2000, 45))
	e.serve("A again", prompt(1000, 75))
}
