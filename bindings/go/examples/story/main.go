// The story of two requests that share a system prompt and an image, in Go. The same story stands
// in the repository's examples folder in C, C++ and Rust, and each prints the same text.
//
//	go run ./examples/story
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

const (
	pageSize       = 16
	pageCount      = 16
	systemLength   = 40
	imagePositions = 50
)

func main() { tell(os.Stdout) }

// teller says what happens to its cache.
type teller struct {
	out   io.Writer
	table *radixkv.PageTable
	cache *radixkv.Cache
}

// must ends the program: nothing in this story may fail, but for request C.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func tell(out io.Writer) {
	// Page 0 is reserved for padding, so a pool of 16 pages has 17.
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: pageSize, PageCount: pageCount + 1,
	})
	must(err)
	defer table.Close() // in any order
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
	must(err)
	defer cache.Close()
	t := &teller{out, table, cache}
	t.say("1. A page table of %d pages of %d positions, and a cache on it", pageCount, pageSize)
	t.pages()

	// Nothing is cached yet. Begin takes a slot and a private page per 16 positions. Then the
	// engine computes all positions, and publishes: whole pages become the cache's.
	promptA := prompt(100, 12)
	positions, err := promptA.PositionCount()
	must(err)
	t.say("2. Request A: %d tokens, %d positions", len(promptA.IDs), positions)
	t.say("   probe: %d positions cached", t.probe(promptA))
	a, stateA := t.begin(promptA)
	t.publish(a, positions)

	// The shared beginning ends inside a page. Whole pages are mapped; of the next one the engine
	// copies what matched, in every layer, since nobody may write to a page of the cache.
	promptB := prompt(200, 20)
	positions, err = promptB.PositionCount()
	must(err)
	t.say("3. Request B, same image, other question: %d tokens, %d positions",
		len(promptB.IDs), positions)
	t.say("   probe: %d positions cached", t.probe(promptB))
	b, stateB := t.begin(promptB)
	copies, err := b.Copies()
	must(err)
	t.say("   copy: %d positions into a private page; compute from token %d on",
		copies[0].PositionCount, stateB.CachedTokenCount)
	must(b.ConfirmCopies())
	t.publish(b, positions)

	// Decode: a token at a time; a page is allocated when one is full. Generated tokens can be
	// published too.
	decoded := []uint32{0}
	for decoded[0] = 1000; decoded[0] < 1020; decoded[0]++ {
		must(b.Append(radixkv.Text(decoded)))
	}
	stateB, err = b.Info()
	must(err)
	t.say("4. B decodes 20 tokens: %d positions, %d pages in the row",
		stateB.PositionCount, stateB.PageCount)
	t.publish(b, stateB.PositionCount)

	// One step over both: the arrays that paged attention kernels take.
	rows := []radixkv.BatchRow{
		{Slot: stateA.Slot, PositionCount: uint32(stateA.PositionCount)},
		{Slot: stateB.Slot, PositionCount: uint32(stateB.PositionCount)},
	}
	arrays := radixkv.BatchArrays{
		IndPtr:      make([]int32, len(rows)+1),
		Indices:     make([]int32, stateA.PageCount+stateB.PageCount),
		LastPageLen: make([]int32, len(rows)),
	}
	_, err = table.Batch(rows, arrays)
	must(err)
	t.say("5. A batch of both: indptr %d %d %d, last page lengths %d %d", arrays.IndPtr[0],
		arrays.IndPtr[1], arrays.IndPtr[2], arrays.LastPageLen[0], arrays.LastPageLen[1])
	t.pages()

	// A request that does not fit is refused whole, and told why: everything cached is in use.
	promptC := radixkv.Text(run(5000, 150))
	t.say("6. Request C: %d tokens of its own", len(promptC.IDs))
	_, _, err = cache.Begin(radixkv.BeginArgs{Tokens: promptC})
	var refused *radixkv.Error
	if !errors.Is(err, radixkv.OutOfPages) || !errors.As(err, &refused) {
		log.Fatalf("request C was not refused for pages: %v", err)
	}
	short := refused.Shortage
	t.say("   refused: %d pages needed, %d free, %d reclaimable, %d locked, %d private",
		short.NeededPageCount, short.FreePageCount, short.ReclaimablePageCount,
		short.LockedPageCount, short.PrivatePageCount)

	// Private pages return to the pool. What was published stays cached, and may be evicted now.
	must(a.Release())
	must(b.Release())
	t.say("7. A and B are released")
	t.pages()
	stats, err := cache.Stats()
	must(err)
	t.say("   cache: %d lookups for %d positions, %d found, %d of them by copy", stats.LookupCount,
		stats.LookupPositionCount, stats.HitPositionCount, stats.PartialHitPositionCount)

	// Now it fits: what was used longest ago is evicted, page by page, no more than needed.
	t.say("8. Request C again")
	c, _ := t.begin(promptC)
	t.pages()
	must(c.Release())
	t.say("   still cached: %d positions of A, %d of B", t.probe(promptA), t.probe(promptB))

	// Eviction on demand reports its victims, for an engine that moves them elsewhere.
	victims := make([]uint32, pageCount)
	count, err := cache.Evict(pageCount, victims)
	must(err)
	t.say("9. Evicted by hand: %d pages", count)
	t.pages()
	must(table.Check())
	must(cache.Check())
	t.say("   audit: every page is in exactly one state")
}

// prompt is the system prompt, the image, and a question of length ids from first on.
func prompt(first, length int) radixkv.Tokens {
	digest, err := radixkv.ImageDigest([]byte("a picture of a cat"))
	must(err)
	// The image is one token that takes 50 positions. Its digest is its identity.
	tokens, err := radixkv.BuildTokens(radixkv.Tokens{
		IDs:   append(run(1, systemLength), run(first, length)...),
		Items: []radixkv.Item{radixkv.Image(systemLength, digest, imagePositions)},
	})
	must(err)
	return tokens
}

// run is count ascending ids from first on.
func run(first, count int) []uint32 {
	ids := make([]uint32, count)
	for i := range ids {
		ids[i] = uint32(first + i)
	}
	return ids
}

func (t *teller) say(format string, values ...any) {
	fmt.Fprintf(t.out, format+"\n", values...)
}

// probe is how much of a prompt is cached. It changes nothing: good for admission and routing.
func (t *teller) probe(tokens radixkv.Tokens) int {
	_, positions, err := t.cache.Probe(radixkv.Namespace{}, tokens)
	must(err)
	return positions
}

func (t *teller) begin(tokens radixkv.Tokens) (radixkv.Sequence, radixkv.SequenceInfo) {
	sequence, state, err := t.cache.Begin(radixkv.BeginArgs{Tokens: tokens})
	must(err)
	t.say("   begin: %d positions reused, %d pages in the row, %d of them shared",
		state.CachedPositionCount, state.PageCount, state.SharedPageCount)
	return sequence, state
}

func (t *teller) publish(sequence radixkv.Sequence, computed int) {
	done, err := sequence.Publish(computed)
	must(err)
	t.say("   publish: %d pages claimed, %d pages of the row shared",
		done.ClaimedPageCount, done.SharedPageCount)
}

func (t *teller) pages() {
	stats, err := t.table.Stats()
	must(err)
	t.say("   pages: %d free, %d cached, %d private; %d reclaimable", stats.FreePageCount,
		stats.CachedPageCount, stats.PrivatePageCount, stats.ReclaimablePageCount)
}
