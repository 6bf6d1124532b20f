package radixkv_test

import (
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// retain serves a request and keeps it.
func (b *bench) retain(ids []uint32) radixkv.Sequence {
	b.Helper()
	sequence, state := b.begin(ids)
	if state.CopyCount > 0 {
		must(b, sequence.ConfirmCopies())
	}
	_, err := sequence.Publish(len(ids))
	must(b, err)
	kept, err := sequence.Retain()
	must(b, err)
	equal(b, "retained", kept, true)
	return sequence
}

func (b *bench) stats() radixkv.CacheStats {
	b.Helper()
	stats, err := b.cache.Stats()
	must(b, err)
	return stats
}

// C01, C02, C04, C09
func TestContinue(t *testing.T) {
	b := newBench(t, 4, 33, 0)
	parent := b.retain(run(0, 10))
	_, err := parent.Info()
	wants(t, err, radixkv.StaleSequence)
	listed, err := b.cache.Retained()
	must(t, err)
	equalSlices(t, "retained", listed, []radixkv.SequenceID{parent.ID()})

	child, state, err := b.cache.Continue(radixkv.ContinueArgs{
		Parent: parent.ID(), Tokens: radixkv.Text(run(70, 2)), ReservePositionCount: 5,
	})
	must(t, err)
	equal(t, "positions", state.PositionCount, 12)
	equal(t, "inherited", state.InheritedPositionCount, 10)
	equal(t, "to copy", state.CopyCount, 1)
	equal(t, "pages", state.PageCount, 5)
	must(t, child.ConfirmCopies())
	_, err = child.Publish(12)
	must(t, err)
	equal(t, "found", b.probe(base, join(run(0, 10), run(70, 2))), 12)
	must(t, child.Release())
	// With nothing to add the last position is computed once more.
	again, state, err := b.cache.Continue(radixkv.ContinueArgs{Parent: parent.ID()})
	must(t, err)
	equal(t, "inherited", state.CachedPositionCount, 9)
	must(t, again.Release())

	stats := b.stats()
	equal(t, "children", stats.InheritCount, 2)
	equal(t, "positions", stats.InheritedPositionCount, 19)
	equal(t, "lookups", stats.LookupCount, 1)
	equal(t, "pages kept", stats.RetainedPageCount, 3)
	must(t, parent.Drop())
	wants(t, parent.Drop(), radixkv.StaleSequence)
	equal(t, "sequences kept", b.stats().RetainedSequenceCount, 0)
	equal(t, "private pages", b.sound().PrivatePageCount, 0)
}

// C05, C06, C07
func TestParents(t *testing.T) {
	b := newBench(t, 4, 33, 0)
	lora := base.WithLoRA(3)
	parent, _, err := b.cache.Begin(radixkv.BeginArgs{
		Namespace: lora, Tokens: radixkv.Text(run(0, 9)),
	})
	must(t, err)
	_, err = parent.Publish(9)
	must(t, err)
	args := radixkv.ContinueArgs{
		Parent: parent.ID(), Namespace: lora, Tokens: radixkv.Text([]uint32{7}),
	}
	_, _, err = b.cache.Continue(args)
	wants(t, err, radixkv.Pending)
	args.Flags = radixkv.ContinueRunning
	args.Namespace = base
	_, _, err = b.cache.Continue(args)
	wants(t, err, radixkv.InvalidArgument)
	args.Namespace = lora
	child, state, err := b.cache.Continue(args)
	must(t, err)
	equal(t, "inherited", state.InheritedPositionCount, 9)
	must(t, child.Release())
	must(t, parent.Release())
	_, _, err = b.cache.Continue(args)
	wants(t, err, radixkv.StaleSequence)
	args.AllTokens = radixkv.Text(join(run(0, 9), []uint32{7}))
	child, state, err = b.cache.Continue(args)
	must(t, err)
	equal(t, "inherited", state.InheritedPositionCount, 0)
	equal(t, "found", state.CachedPositionCount, 8)
	must(t, child.Release())
}

// C01, C03
func TestRetainedIsKept(t *testing.T) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: 4, PageCount: 13, SlotCount: 4,
	})
	must(t, err)
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{
		RetainedSequenceLimit: 2, RetainedPageLimit: 4,
	})
	must(t, err)
	b := &bench{t, table, cache}
	first, second := b.retain(run(0, 8)), b.retain(run(100, 5))
	count, err := cache.Evict(100, nil)
	must(t, err)
	equal(t, "evicted", count, 0)
	_, _, err = cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(200, 48))})
	refused := wants(t, err, radixkv.OutOfPages)
	equal(t, "kept", refused.Shortage.RetainedPageCount, 4)

	third := b.retain(run(300, 4)) // the limits let the first go
	wants(t, first.Drop(), radixkv.StaleSequence)
	equal(t, "displaced", b.stats().DisplacedSequenceCount, 1)
	_, err = cache.DropRetained(-1)
	wants(t, err, radixkv.InvalidArgument)
	_, err = cache.DropRetainedPool(1, 1) // there is one pool
	wants(t, err, radixkv.InvalidArgument)
	count, err = cache.DropRetained(1)
	must(t, err)
	equal(t, "gained", count, 2)
	wants(t, second.Drop(), radixkv.StaleSequence)
	must(t, third.Drop())

	large, _ := b.begin(run(400, 20))
	_, err = large.Publish(20)
	must(t, err)
	kept, err := large.Retain()
	must(t, err)
	equal(t, "retained", kept, false)
	isStale(t, large)
	b.sound()
	must(t, cache.Close())
	must(t, table.Close())
}

// C08
func TestFork(t *testing.T) {
	b := newBench(t, 4, 33, 0)
	parent, state := b.begin(run(0, 10))
	_, err := parent.Publish(10)
	must(t, err)
	row := b.row(state.Slot)
	children := make([]radixkv.ForkChild, 3)
	must(t, parent.Fork(children, 0))
	for i, child := range children {
		state, err := b.cache.Sequence(child.Sequence).Info()
		must(t, err)
		own := b.row(child.Slot)
		equalSlices(t, "shared pages", own[:2], row[:2])
		equal(t, "slot", state.Slot, child.Slot)
		equal(t, "inherited", state.InheritedPositionCount, 10)
		equal(t, "copies", child.CopyCount, 1)
		equal(t, "copy", b.copyOf(b.cache.Sequence(child.Sequence)), radixkv.PageCopy{
			SourcePage: row[2], TargetPage: own[2], PositionCount: 2,
		})
		equal(t, "private pages", b.sound().PrivatePageCount, uint64(4-i))
		must(t, b.cache.Sequence(child.Sequence).Release())
	}
	// All of them or none; the slice is as it was.
	before := append([]radixkv.ForkChild(nil), children...)
	wants(t, parent.Fork(append(children, children...), 0), radixkv.OutOfSlots)
	wants(t, parent.Fork(nil, 0), radixkv.InvalidArgument)
	wants(t, parent.Fork(children, 1<<40), radixkv.InvalidArgument)
	wants(t, parent.Fork(children, 4*29), radixkv.OutOfPages)
	equalSlices(t, "children", children, before)
	// A retained parent has children too, and they outlive it.
	kept, err := parent.Retain()
	must(t, err)
	equal(t, "retained", kept, true)
	must(t, parent.Fork(children[:1], 4))
	must(t, parent.Drop())
	child := b.cache.Sequence(children[0].Sequence)
	must(t, child.ConfirmCopies())
	must(t, child.Append(radixkv.Text(run(50, 1))))
	must(t, child.Release())
	equal(t, "private pages", b.sound().PrivatePageCount, 0)
}

func TestChildrenOfAClosedCache(t *testing.T) {
	b := newBench(t, 4, 33, 0)
	sequence, _ := b.begin(run(0, 10))
	must(t, b.cache.Close())
	_, err := sequence.Retain()
	equal(t, "retain", err, radixkv.ErrClosed)
	equal(t, "drop", sequence.Drop(), radixkv.ErrClosed)
	equal(t, "fork", sequence.Fork(make([]radixkv.ForkChild, 1), 0), radixkv.ErrClosed)
	_, _, err = b.cache.Continue(radixkv.ContinueArgs{Parent: sequence.ID()})
	equal(t, "continue", err, radixkv.ErrClosed)
	_, err = b.cache.Retained()
	equal(t, "retained", err, radixkv.ErrClosed)
	_, err = b.cache.DropRetained(1)
	equal(t, "drop retained", err, radixkv.ErrClosed)
	b.cache, err = radixkv.NewCache(b.table, radixkv.CacheConfig{})
	must(t, err)
}
