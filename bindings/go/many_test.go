package radixkv_test

import (
	"strings"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// J03: many items in one call, each with its status.
func TestMany(t *testing.T) {
	b := newBench(t, 4, 33, 0)
	sequences, states, statuses, err := b.cache.BeginMany([]radixkv.BeginArgs{
		{Tokens: radixkv.Text(run(0, 6))},
		{Tokens: radixkv.Text(nil)},
		{Tokens: radixkv.Text(run(100, 9)), AllocatePositionCount: 4},
		{Tokens: radixkv.Tokens{
			IDs: run(200, 3), Items: []radixkv.Item{radixkv.Image(1, radixkv.Digest{1}, 6)},
		}},
	})
	e := wants(t, err, radixkv.InvalidArgument)
	equal(t, "names the item", strings.HasPrefix(e.Message, "items[1]: "), true)
	equal(t, "statuses", len(statuses), 4)
	equal(t, "the bad one", statuses[1], radixkv.InvalidArgument)
	equal(t, "no sequence", sequences[1].ID(), 0)
	equal(t, "positions of the image's", states[3].PositionCount, 8)
	equal(t, "pages of the first chunk", states[2].PageCount, 1)
	first, image := sequences[0].ID(), sequences[3].ID()

	statuses, err = b.cache.AppendMany([]radixkv.AppendItem{
		{Sequence: first, Tokens: radixkv.Text(run(6, 2))},
		{Sequence: image, Tokens: radixkv.Text(run(9, 1))},
		{Sequence: 77, Tokens: radixkv.Text(run(9, 1))},
		{Sequence: first, Tokens: radixkv.Text(run(8, 1))},
	})
	wants(t, err, radixkv.StaleSequence)
	equal(t, "appended", statuses[3], radixkv.OK)
	equal(t, "stale", statuses[2], radixkv.StaleSequence)
	state, err := sequences[0].Info()
	must(t, err)
	equal(t, "positions", state.PositionCount, 9)

	published, statuses, err := b.cache.PublishMany([]radixkv.PublishItem{
		{Sequence: first, ComputedPositionCount: 8}, {Sequence: image, ComputedPositionCount: 8},
	})
	must(t, err)
	equal(t, "published", statuses[1], radixkv.OK)
	equal(t, "claimed", published[0].ClaimedPageCount, 2)

	pages := make([]uint32, 2)
	matches, statuses, err := b.cache.MatchMany([]radixkv.LookupItem{
		{Tokens: radixkv.Text(run(0, 8)), Pages: make([]uint32, 1)},
		{Tokens: radixkv.Text(run(0, 8)), Pages: pages, Flags: radixkv.MatchLock},
	})
	wants(t, err, radixkv.BufferTooSmall)
	equal(t, "too small", statuses[0], radixkv.BufferTooSmall)
	equal(t, "needed", matches[0].PageCount, 2)
	equal(t, "found", matches[1].PositionCount, 8)
	equal(t, "the first page", pages[0] != 0 && pages[0] != pages[1], true)
	must(t, b.cache.Unlock(matches[1].Lock))

	found, _, err := b.cache.ProbeMany([]radixkv.LookupItem{
		{Tokens: radixkv.Text(run(0, 6))}, {Tokens: radixkv.Text(run(50, 6))},
	})
	must(t, err)
	equal(t, "probed", found[0].PositionCount, 6)
	equal(t, "nothing", found[1].PositionCount, 0)

	statuses, err = b.cache.ReleaseMany([]radixkv.SequenceID{
		first, image, sequences[2].ID(), first,
	})
	e = wants(t, err, radixkv.StaleSequence)
	equal(t, "names the sequence", strings.HasPrefix(e.Message, "sequences[3]: "), true)
	equal(t, "released", statuses[0], radixkv.OK)
	statuses, err = b.cache.AppendMany(nil)
	must(t, err)
	equal(t, "nothing to do", len(statuses), 0)
}

// J03: what Go refuses of one item says nothing of the others.
func TestManyWithANegativeCount(t *testing.T) {
	b := newBench(t, 4, 33, 0)
	begun, _, statuses, err := b.cache.BeginMany([]radixkv.BeginArgs{
		{Tokens: radixkv.Text(run(300, 4))},
		{Tokens: radixkv.Text(run(400, 4)), AllocatePositionCount: -1},
		{Tokens: radixkv.Text(run(500, 4))},
	})
	e := wants(t, err, radixkv.InvalidArgument)
	equal(t, "message", e.Message, "items[1].AllocatePositionCount is negative")
	equalSlices(t, "one is negative", statuses, []radixkv.Status{
		radixkv.OK, radixkv.InvalidArgument, radixkv.OK,
	})
	must(t, begun[0].Release())
	must(t, begun[2].Release())
	_, _, statuses, err = b.cache.BeginMany([]radixkv.BeginArgs{
		{Tokens: radixkv.Text(run(400, 4)), AllocatePositionCount: -1},
		{Tokens: radixkv.Text(nil)},
	})
	e = wants(t, err, radixkv.InvalidArgument)
	equal(t, "names the last", strings.HasPrefix(e.Message, "items[1]: "), true)
	equal(t, "statuses", statuses[0], radixkv.InvalidArgument)
}

// J03: a step that goes on beside Close may look at each status.
func TestManyOfAClosedCache(t *testing.T) {
	b := newBench(t, 4, 9, 0)
	must(t, b.cache.Close())
	wants := []radixkv.Status{radixkv.InvalidState, radixkv.InvalidState}
	sequences, states, statuses, err := b.cache.BeginMany(make([]radixkv.BeginArgs, 2))
	equal(t, "error", err, radixkv.ErrClosed)
	equalSlices(t, "begun", statuses, wants)
	equal(t, "sequences and states", [2]int{len(sequences), len(states)}, [2]int{2, 2})
	matches, statuses, err := b.cache.MatchMany(make([]radixkv.LookupItem, 2))
	equal(t, "error", err, radixkv.ErrClosed)
	equalSlices(t, "matched", statuses, wants)
	equal(t, "matches", len(matches), 2)
	statuses, err = b.cache.ReleaseMany(make([]radixkv.SequenceID, 2))
	equal(t, "error", err, radixkv.ErrClosed)
	equalSlices(t, "released", statuses, wants)
	b.cache, err = radixkv.NewCache(b.table, radixkv.CacheConfig{})
	must(t, err)
}
