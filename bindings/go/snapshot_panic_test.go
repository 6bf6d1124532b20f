package radixkv_test

import (
	"fmt"
	"testing"
	"time"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// panicOf is what a call panics with; nil when it does not.
func panicOf(call func()) (reason any) {
	defer func() { reason = recover() }()
	call()
	return nil
}

// S07: a free that panics costs the other values nothing.
func TestSnapshotFreePanics(t *testing.T) {
	freed := map[int]int{}
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{}, func(number int) {
		freed[number]++
		if number < 2 {
			panic(fmt.Sprint("free of ", number))
		}
	})
	must(t, err)
	for number := 0; number < 4; number++ {
		_, err := cache.Insert(radixkv.SnapshotArgs[int]{
			Tokens: run(10*number, 4), Value: number, SizeBytes: 10,
		})
		must(t, err)
	}
	if panicOf(func() { _ = cache.Clear() }) == nil {
		t.Error("the panic is gone")
	}
	for number := 0; number < 4; number++ {
		equal(t, "times freed", freed[number], 1)
	}
	stats, err := cache.Stats()
	must(t, err)
	equal(t, "entries", stats.EntryCount, 0)
	must(t, cache.Close())
}

// panicInFree repeats a call until it frees what a writer let go, and free panics in it. Else undo
// ends what it made.
func panicInFree(d *onDisk, panics *bool, call func() (undo func() error, err error)) {
	d.Helper()
	// What is removed while it is written is let go by the writer: the next call frees it.
	for end := time.Now().Add(10 * time.Second); ; {
		if time.Now().After(end) {
			d.Skip("each value was freed by the call that removed it")
		}
		for i := 1; i < 50; i++ {
			d.put(run(100*i, 4), 'a', 0)
		}
		for i := 1; i < 50; i++ {
			_, err := d.Remove(base, run(100*i, 4))
			must(d, err)
		}
		time.Sleep(5 * time.Millisecond)
		var undo func() error
		var err error
		*panics = true
		reason := panicOf(func() { undo, err = call() })
		*panics = false
		if reason != nil {
			equal(d, "panic", reason, any("in free"))
			return
		}
		must(d, err)
		must(d, undo())
	}
}

// S05, S07, T11: nor is the pin or the fetch lost that the call was to return.
func TestSnapshotTierFreePanics(t *testing.T) {
	panics := false
	d := &onDisk{TB: t, directory: t.TempDir()}
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{}, func(*state) {
		d.freed.Add(1)
		if panics {
			panic("in free")
		}
	})
	must(t, err)
	d.SnapshotCache = cache
	d.attach()
	d.put(run(0, 4), 'a', 0)
	panicInFree(d, &panics, func() (func() error, error) {
		pin, err := d.Match(base, run(0, 4))
		return pin.Release, err
	})
	stats, err := d.Stats()
	must(t, err)
	equal(t, "pins", stats.PinCount, 0)
	d.emptied()
	panicInFree(d, &panics, func() (func() error, error) {
		fetch, err := d.Fetch(base, run(0, 4), 0)
		return fetch.Cancel, err
	})
	tier, err := d.TierStats()
	must(t, err)
	equal(t, "fetches", tier.TicketCount, 0)
	_, err = d.Detach(time.Minute)
	must(t, err)
	d.end()
}

// S05, S07: nor the pin of Take, which lets values go for the room that its own takes.
func TestSnapshotTierFreePanicsInTake(t *testing.T) {
	panics := false
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{ByteLimit: 100000},
		func(*state) {
			if panics {
				panic("in free")
			}
		})
	must(t, err)
	d, fetch := fetched(t, cache)
	_, err = d.Insert(radixkv.SnapshotArgs[*state]{Tokens: run(50, 4), SizeBytes: 60003})
	must(t, err)
	panics = true
	reason := panicOf(func() { take(t, fetch) })
	panics = false
	equal(t, "panic", reason, any("in free"))
	stats, err := d.Stats()
	must(t, err)
	equal(t, "pins", stats.PinCount, 0)
	must(t, d.Close())
}
