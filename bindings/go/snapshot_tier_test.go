package radixkv_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// state is a value of two parts.
type state struct{ head, body []byte }

func newState(name byte) *state {
	return &state{bytes.Repeat([]byte{name}, 3), bytes.Repeat([]byte{name, 1}, 30000)}
}

// onDisk is a cache over a directory, and a count of what it freed.
type onDisk struct {
	testing.TB
	*radixkv.SnapshotCache[*state]
	directory   string
	made, freed atomic.Int64
}

func newOnDisk(t testing.TB, directory string) *onDisk {
	t.Helper()
	d := &onDisk{TB: t, directory: directory}
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{},
		func(*state) { d.freed.Add(1) })
	must(t, err)
	d.SnapshotCache = cache
	d.attach()
	return d
}

func (d *onDisk) attach() {
	d.Helper()
	must(d, d.Attach(radixkv.SnapshotTierConfig{
		Directory: d.directory, ByteLimit: 64 << 20, WorkerCount: 2,
		CommitInterval: time.Millisecond,
	}))
}

func (d *onDisk) put(tokens []uint32, name byte, flags radixkv.SnapshotInsertFlags) {
	d.Helper()
	value := newState(name)
	d.made.Add(1)
	_, err := d.Insert(radixkv.SnapshotArgs[*state]{
		Tokens: tokens, Value: value, SizeBytes: 60003,
		Flags: flags | radixkv.SnapshotInsertStorable,
		Parts: [][]byte{value.head, {}, value.body},
	})
	must(d, err)
}

// emptied is memory without anything, over all that was written.
func (d *onDisk) emptied() {
	d.Helper()
	done, err := d.Detach(time.Minute)
	must(d, err)
	equal(d, "all is written", done, true)
	must(d, d.Clear())
	d.attach()
}

// end closes it: everything was freed once.
func (d *onDisk) end() {
	d.Helper()
	must(d, d.Check())
	must(d, d.Close())
	equal(d, "values freed", d.freed.Load(), d.made.Load())
}

// fetched is a cache over a new directory, and a fetch of what only that has.
func fetched(
	t testing.TB, cache *radixkv.SnapshotCache[*state],
) (*onDisk, *radixkv.SnapshotFetch[*state]) {
	t.Helper()
	d := &onDisk{TB: t, SnapshotCache: cache, directory: t.TempDir()}
	d.attach()
	d.put(run(0, 4), 'a', 0)
	d.emptied()
	fetch, err := d.Fetch(base, run(0, 4), 0)
	must(t, err)
	return d, fetch
}

func take(t testing.TB, fetch *radixkv.SnapshotFetch[*state]) *radixkv.SnapshotPin[*state] {
	t.Helper()
	for {
		pin, err := fetch.Take()
		if !errors.Is(err, radixkv.Pending) {
			must(t, err)
			return pin
		}
		time.Sleep(time.Millisecond)
	}
}

// T01: what was written comes back, also in another cache, with equal bytes.
func TestSnapshotTierRestart(t *testing.T) {
	d := newOnDisk(t, t.TempDir())
	d.put(run(0, 4), 'a', 0)
	pin, err := d.Match(base, run(0, 4))
	must(t, err)
	equal(t, "a copy", pin.IsCopy, false)
	parts, err := pin.Parts()
	must(t, err)
	equal(t, "parts", len(parts), 3)
	equal(t, "its own bytes", &parts[2][0], &pin.Value().body[0])
	must(t, pin.Release())
	done, err := d.Flush(time.Minute)
	must(t, err)
	equal(t, "flushed", done, true)
	d.end()

	d = newOnDisk(t, d.directory)
	runtime.GC()
	pin, fetchable, err := d.Find(base, run(0, 6), 0)
	must(t, err)
	equal(t, "a miss", pin, nil)
	equal(t, "fetchable", fetchable, 4)
	fetch, err := d.Fetch(base, run(0, 6), 0)
	must(t, err)
	equal(t, "tokens", fetch.TokenCount, 4)
	equal(t, "common tokens", fetch.CommonTokenCount, 4)
	equal(t, "bytes", fetch.SizeBytes, 60003)
	pin = take(t, fetch)
	equal(t, "a copy", pin.IsCopy, true)
	equal(t, "value", pin.Value(), nil)
	parts, err = pin.Parts()
	must(t, err)
	want := newState('a')
	equal(t, "parts", len(parts), 3)
	equal(t, "head", bytes.Equal(parts[0], want.head), true)
	equal(t, "nothing", len(parts[1]), 0)
	equal(t, "body", bytes.Equal(parts[2], want.body), true)
	_, err = fetch.Take()
	wants(t, err, radixkv.StaleTicket)
	wants(t, fetch.Cancel(), radixkv.StaleTicket)
	must(t, pin.Release())
	_, err = pin.Parts()
	wants(t, err, radixkv.StalePin)
	none, err := d.Fetch(base, run(0, 6), 0)
	must(t, err)
	equal(t, "nothing to fetch", none, nil)
	stats, err := d.TierStats()
	must(t, err)
	equal(t, "loaded", stats.LoadedCount, 1)
	equal(t, "read", stats.ReadBytes, 60003)
	equal(t, "limit", stats.ByteLimit, 64<<20)
	d.end()
}

// T01, T11: what can be trimmed is fetched for its beginning; a fetch can be given up.
func TestSnapshotTierFetch(t *testing.T) {
	d := newOnDisk(t, t.TempDir())
	d.put(run(0, 9), 'a', radixkv.SnapshotInsertTrimmable)
	d.emptied()
	none, err := d.Fetch(base, run(0, 4), 0)
	must(t, err)
	equal(t, "not as a whole", none, nil)
	fetch, err := d.Fetch(base, run(0, 4), radixkv.SnapshotMatchTrimmable)
	must(t, err)
	equal(t, "tokens", fetch.TokenCount, 9)
	equal(t, "common tokens", fetch.CommonTokenCount, 4)
	must(t, fetch.Cancel())
	wants(t, fetch.Cancel(), radixkv.StaleTicket)
	fetch, err = d.Fetch(base, run(0, 4), radixkv.SnapshotMatchTrimmable)
	must(t, err)
	pin := take(t, fetch)
	equal(t, "common tokens", pin.CommonTokenCount, 4)
	must(t, pin.Release())
	// What is forgotten ends with the garbage collection.
	d.emptied()
	_, err = d.Fetch(base, run(0, 9), 0)
	must(t, err)
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		runtime.GC()
		time.Sleep(wait)
		stats, err := d.TierStats()
		must(t, err)
		if stats.TicketCount == 0 {
			d.end()
			return
		}
	}
	t.Fatal("the ticket is still out")
}

// T14, M01: one owner of a directory; what cannot be, and what is no argument.
func TestSnapshotTierRefused(t *testing.T) {
	d := newOnDisk(t, t.TempDir())
	config := radixkv.SnapshotTierConfig{Directory: d.directory, ByteLimit: 1 << 20}
	wants(t, d.Attach(config), radixkv.InvalidState)
	other, err := radixkv.NewSnapshotCache[*state](radixkv.SnapshotCacheConfig{}, nil)
	must(t, err)
	wants(t, other.Attach(config), radixkv.Storage)
	wants(t, other.Attach(radixkv.SnapshotTierConfig{ByteLimit: 1}), radixkv.InvalidArgument)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	config.Directory = file
	wants(t, other.Attach(config), radixkv.Storage)
	config.Flags = 1 << 9
	names(t, other.Attach(config), radixkv.InvalidArgument, "config.flags")
	config.Flags = 0
	config.CommitInterval = -time.Second
	wants(t, other.Attach(config), radixkv.InvalidArgument)
	isDone, err := other.Flush(0)
	wants(t, err, radixkv.InvalidState)
	equal(t, "flushed", isDone, false)
	isDone, err = other.Detach(0)
	wants(t, err, radixkv.InvalidState)
	equal(t, "written", isDone, false)
	_, err = d.Insert(radixkv.SnapshotArgs[*state]{
		Tokens: run(0, 2), Flags: radixkv.SnapshotInsertStorable,
	})
	wants(t, err, radixkv.InvalidArgument)
	_, err = d.Insert(radixkv.SnapshotArgs[*state]{
		Tokens: run(0, 2), Parts: [][]byte{{1}},
	})
	wants(t, err, radixkv.InvalidArgument)
	var none *radixkv.SnapshotFetch[*state]
	_, err = none.Take()
	wants(t, err, radixkv.InvalidArgument)
	wants(t, none.Cancel(), radixkv.InvalidArgument)
	_, err = new(radixkv.SnapshotPin[*state]).Parts()
	wants(t, err, radixkv.InvalidArgument)
	must(t, other.Close())
	d.put(run(0, 2), 'a', 0)
	last, err := d.Match(base, run(0, 2))
	must(t, err)
	must(t, last.Release())
	d.end()
	_, err = last.Parts()
	wants(t, err, radixkv.StalePin)
	for name, call := range map[string]func() error{
		"Attach":    func() error { return d.Attach(config) },
		"Detach":    func() error { _, err := d.Detach(0); return err },
		"Flush":     func() error { _, err := d.Flush(0); return err },
		"Fetch":     func() error { _, err := d.Fetch(base, nil, 0); return err },
		"TierStats": func() error { _, err := d.TierStats(); return err },
	} {
		if err := call(); !errors.Is(err, radixkv.ErrClosed) {
			t.Errorf("SnapshotCache.%s: %v", name, err)
		}
	}
}

// T01: a directory may be written without io_uring.
func TestSnapshotTierThreads(t *testing.T) {
	cache, err := radixkv.NewSnapshotCache[*state](radixkv.SnapshotCacheConfig{}, nil)
	must(t, err)
	must(t, cache.Attach(radixkv.SnapshotTierConfig{
		Flags: radixkv.TiersThreads, Directory: t.TempDir(), ByteLimit: 1 << 20,
	}))
	stats, err := cache.TierStats()
	must(t, err)
	equal(t, "io_uring", stats.IsRing, false)
	must(t, cache.Close())
}

// T12, S09: many goroutines over one directory; each value is freed once.
func TestSnapshotTierConcurrentUse(t *testing.T) {
	d := newOnDisk(t, t.TempDir())
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		i := i
		all.Add(1)
		go func() {
			defer all.Done()
			for round := 0; round < 60; round++ {
				tokens := run(10*(round%5), 3)
				if (round+i)%3 == 0 {
					d.put(tokens, byte(round%5), 0)
					continue
				}
				fetch, err := d.Fetch(base, tokens, 0)
				if err != nil || fetch == nil {
					if i == 0 && round%20 == 19 {
						must(t, d.Clear())
					}
					continue
				}
				if pin := take(t, fetch); pin != nil {
					parts, err := pin.Parts()
					must(t, err)
					if !bytes.Equal(parts[2], newState(byte(round%5)).body) {
						t.Error("other bytes")
					}
					must(t, pin.Release())
				}
			}
		}()
	}
	all.Wait()
	d.emptied()
	d.end()
}

// T01: a part may lie in memory that is not Go's, as those of a copy do.
func TestSnapshotTierPartsOfACopy(t *testing.T) {
	d := newOnDisk(t, t.TempDir())
	d.put(run(0, 4), 'a', 0)
	d.emptied()
	fetch, err := d.Fetch(base, run(0, 4), 0)
	must(t, err)
	pin := take(t, fetch)
	equal(t, "a copy", pin.IsCopy, true)
	parts, err := pin.Parts()
	must(t, err)
	d.made.Add(1)
	done, err := d.Insert(radixkv.SnapshotArgs[*state]{
		Tokens: run(50, 4), Value: newState('b'), SizeBytes: 60003,
		Flags: radixkv.SnapshotInsertStorable, Parts: parts,
	})
	must(t, err)
	equal(t, "stored", done.Stored, true)
	// Both are gone before the memory is.
	flushed, err := d.Flush(time.Minute)
	must(t, err)
	equal(t, "flushed", flushed, true)
	must(t, d.Clear())
	must(t, pin.Release())
	d.end()
}

// What writers let go after a call is freed by whoever looks next.
func TestSnapshotTierStatsFree(t *testing.T) {
	d := newOnDisk(t, t.TempDir())
	for i := 0; i < 200; i++ {
		d.put(run(i, 4), byte(i), 0)
	}
	must(t, d.Clear())
	for end := time.Now().Add(10 * time.Second); d.freed.Load() < d.made.Load(); {
		if time.Now().After(end) {
			t.Fatalf("%d of %d values freed", d.freed.Load(), d.made.Load())
		}
		_, err := d.Stats()
		must(t, err)
		time.Sleep(time.Millisecond)
	}
	d.end()
}

// A part without bytes has no address, also of a copy: see TestPlanArraysOfNothing.
func TestSnapshotTierPartsOfNothing(t *testing.T) {
	d := newOnDisk(t, t.TempDir())
	d.put(run(0, 4), 'a', 0)
	d.emptied()
	fetch, err := d.Fetch(base, run(0, 6), 0)
	must(t, err)
	pin := take(t, fetch)
	equal(t, "a copy", pin.IsCopy, true)
	parts, err := pin.Parts()
	must(t, err)
	equal(t, "parts", len(parts), 3)
	nothing := parts[1]
	deep(2000)
	equal(t, "no address", nothing == nil, true)
	must(t, pin.Release())
	d.end()
}

// Nor has a copy whose first part is that, in a call that frees another value by the engine's code.
func TestSnapshotTierFreeBesideACopyOfNothing(t *testing.T) {
	var freed, freedByMatch int
	matching := false
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{}, func(*state) {
		freed++
		if matching {
			freedByMatch++
			deep(2000)
		}
	})
	must(t, err)
	d := &onDisk{TB: t, SnapshotCache: cache, directory: t.TempDir()}
	d.attach()
	put := func(tokens []uint32, parts ...[]byte) {
		_, err := d.Insert(radixkv.SnapshotArgs[*state]{
			Tokens: tokens, SizeBytes: 60000, Flags: radixkv.SnapshotInsertStorable, Parts: parts,
		})
		must(t, err)
	}
	body := newState('a').body
	put(run(0, 4), nil, body)
	d.emptied()
	fetch, err := d.Fetch(base, run(0, 4), 0)
	must(t, err)
	must(t, take(t, fetch).Release())
	// What is removed while it is written is let go by the writer: the next call frees it.
	made := 1
	for end := time.Now().Add(10 * time.Second); freedByMatch == 0; {
		if time.Now().After(end) {
			t.Skip("each value was freed by the call that removed it")
		}
		for i := 1; i < 50; i++ {
			put(run(100*i, 4), body)
			made++
		}
		for i := 1; i < 50; i++ {
			_, err := d.Remove(base, run(100*i, 4))
			must(t, err)
		}
		time.Sleep(5 * time.Millisecond)
		matched := make(chan error)
		matching = true
		go func() { // a goroutine's stack is small at first
			pin, err := d.Match(base, run(0, 4))
			if err == nil {
				err = pin.Release()
			}
			matched <- err
		}()
		must(t, <-matched)
		matching = false
	}
	must(t, d.Close())
	equal(t, "values freed", freed, made)
}

// S05, M03: a pin keeps its cache, whose copies are its parts.
func TestSnapshotTierPinKeepsItsCache(t *testing.T) {
	pin := func() *radixkv.SnapshotPin[*state] {
		// Without a free that leads back to the cache: that would keep it.
		cache, err := radixkv.NewSnapshotCache[*state](radixkv.SnapshotCacheConfig{}, nil)
		must(t, err)
		_, fetch := fetched(t, cache)
		return take(t, fetch)
	}()
	for round := 0; round < 3; round++ {
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	parts, err := pin.Parts()
	must(t, err)
	equal(t, "body", bytes.Equal(parts[2], newState('a').body), true)
	must(t, pin.Release())
}

// M03: Parts beside the Release and the Close that take away what it reads.
func TestSnapshotTierPartsBesideRelease(t *testing.T) {
	for round := 0; round < 100; round++ {
		cache, err := radixkv.NewSnapshotCache[*state](radixkv.SnapshotCacheConfig{}, nil)
		must(t, err)
		_, err = cache.Insert(radixkv.SnapshotArgs[*state]{Tokens: run(0, 4)})
		must(t, err)
		pin, err := cache.Match(base, run(0, 4))
		must(t, err)
		var all sync.WaitGroup
		all.Add(1)
		go func() {
			defer all.Done()
			for err := error(nil); !errors.Is(err, radixkv.StalePin); {
				_, err = pin.Parts()
				if err != nil && !errors.Is(err, radixkv.StalePin) &&
					!errors.Is(err, radixkv.ErrClosed) {
					t.Error(err)
				}
			}
		}()
		must(t, cache.Close())
		must(t, pin.Release())
		all.Wait()
	}
}
