package radixkv_test

import (
	"errors"
	"math/rand"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// shelf is a snapshot cache of numbered values, and how often each was freed.
type shelf struct {
	testing.TB
	cache *radixkv.SnapshotCache[int]
	freed map[int]int
	made  int
}

func newShelf(t testing.TB, config radixkv.SnapshotCacheConfig) *shelf {
	t.Helper()
	s := &shelf{TB: t, freed: map[int]int{}}
	cache, err := radixkv.NewSnapshotCache(config, func(number int) { s.freed[number]++ })
	must(t, err)
	s.cache = cache
	t.Cleanup(func() {
		must(t, cache.Close())
		for number := 0; number < s.made; number++ {
			equal(t, "times freed", s.freed[number], 1)
		}
	})
	return s
}

// put stores the next number.
func (s *shelf) put(tokens []uint32) radixkv.SnapshotInsertResult {
	s.Helper()
	made, err := s.cache.Insert(radixkv.SnapshotArgs[int]{
		Tokens: tokens, Value: s.made, SizeBytes: 10,
	})
	must(s, err)
	s.made++
	must(s, s.cache.Check())
	return made
}

func (s *shelf) match(tokens []uint32) *radixkv.SnapshotPin[int] {
	s.Helper()
	pin, err := s.cache.Match(base, tokens)
	must(s, err)
	return pin
}

func (s *shelf) stats() radixkv.SnapshotCacheStats {
	s.Helper()
	stats, err := s.cache.Stats()
	must(s, err)
	return stats
}

// S01, S04: the longest stored prefix, and the token after it.
func TestSnapshotMatch(t *testing.T) {
	s := newShelf(t, radixkv.SnapshotCacheConfig{})
	s.put(run(0, 4))
	made, err := s.cache.Insert(radixkv.SnapshotArgs[int]{
		Tokens: run(0, 9), Value: 1, SizeBytes: 5, HasNextToken: true, NextToken: 77,
	})
	must(t, err)
	s.made++
	equal(t, "stored", made.Stored, true)
	for count, want := range map[int]int{0: 0, 3: 0, 4: 4, 8: 4, 9: 9, 12: 9} {
		pin := s.match(run(0, count))
		length, err := s.cache.Probe(base, run(0, count))
		must(t, err)
		equal(t, "probe", length, want)
		if want == 0 {
			equal(t, "a miss", pin, nil)
			continue
		}
		equal(t, "tokens", pin.TokenCount, want)
		equal(t, "full hit", pin.FullHit, count == want)
		equal(t, "value", pin.Value(), want/9)
		equal(t, "next token", pin.HasNextToken, want == 9)
		if want == 9 {
			equal(t, "next token", pin.NextToken, 77)
			equal(t, "bytes", pin.SizeBytes, 5)
		}
		must(t, pin.Release())
	}
	tenant := radixkv.Namespace{Salt: [32]byte{1}}
	other, err := s.cache.Match(tenant, run(0, 9))
	must(t, err)
	equal(t, "another tenant's", other, nil)
	removed, err := s.cache.Remove(base, run(0, 9))
	must(t, err)
	equal(t, "removed", removed, true)
	equal(t, "freed", s.freed[1], 1)
	stats := s.stats()
	equal(t, "entries", stats.EntryCount, 1)
	equal(t, "hits", stats.HitCount, 4)
	equal(t, "lookups", stats.LookupCount, 7)
}

// S01: an entry that can be cut is found for a list that parts from it, if that is asked for.
func TestSnapshotMatchTrimmable(t *testing.T) {
	s := newShelf(t, radixkv.SnapshotCacheConfig{})
	made, err := s.cache.Insert(radixkv.SnapshotArgs[int]{
		Tokens: run(0, 9), Value: 0, Flags: radixkv.SnapshotInsertTrimmable,
	})
	must(t, err)
	s.made++
	equal(t, "stored", made.Stored, true)
	if s.match(run(0, 4)) != nil {
		t.Fatal("a trimmable entry is found without being asked for")
	}
	pin, err := s.cache.MatchWith(base, run(0, 4), radixkv.SnapshotMatchTrimmable)
	must(t, err)
	equal(t, "tokens", pin.TokenCount, 9)
	equal(t, "common tokens", pin.CommonTokenCount, 4)
	equal(t, "a full hit", pin.FullHit, false)
	must(t, pin.Release())
}

// S02, S05: who has a value keeps it; a second release is an error.
func TestSnapshotPins(t *testing.T) {
	s := newShelf(t, radixkv.SnapshotCacheConfig{EntryLimit: 1})
	s.put(run(0, 4))
	first, second := s.match(run(0, 4)), s.match(run(0, 5))
	equal(t, "replaced", s.put(run(0, 4)).Replaced, true)
	equal(t, "value", first.Value(), 0)
	must(t, first.Release())
	wants(t, first.Release(), radixkv.StalePin)
	equal(t, "freed", s.freed[0], 0)
	must(t, second.Release())
	equal(t, "freed", s.freed[0], 1)
	// S03: what is pinned is not evicted, and goes with the release.
	third := s.match(run(0, 4))
	equal(t, "evicted", s.put(run(50, 4)).EvictedCount, 0)
	equal(t, "entries", s.stats().EntryCount, 2)
	must(t, third.Release())
	equal(t, "entries", s.stats().EntryCount, 1)
	var none *radixkv.SnapshotPin[int]
	wants(t, none.Release(), radixkv.InvalidArgument)
	wants(t, new(radixkv.SnapshotPin[int]).Release(), radixkv.InvalidArgument)
}

// S03, S06: limits, and a cache that stores nothing.
func TestSnapshotLimits(t *testing.T) {
	s := newShelf(t, radixkv.SnapshotCacheConfig{ByteLimit: 25})
	s.put(run(0, 4))
	s.put(run(10, 4))
	equal(t, "evicted", s.put(run(20, 4)).EvictedCount, 1)
	equal(t, "bytes", s.stats().EntryBytes, 20)
	must(t, s.cache.Clear())
	equal(t, "entries", s.stats().EntryCount, 0)
	off := newShelf(t, radixkv.SnapshotCacheConfig{Disabled: true})
	equal(t, "stored", off.put(run(0, 4)).Stored, false)
	equal(t, "freed", off.freed[0], 1)
}

// S07: free may call the cache, its Close included: no lock is held.
func TestSnapshotFreeCallsBack(t *testing.T) {
	var cache *radixkv.SnapshotCache[string]
	var freed []string
	put := func(tokens []uint32, value string) {
		_, err := cache.Insert(radixkv.SnapshotArgs[string]{Tokens: tokens, Value: value})
		must(t, err)
	}
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{EntryLimit: 1},
		func(value string) {
			freed = append(freed, value)
			switch value {
			case "inserts":
				put(nil, "of no tokens")
				put(run(5, 3), "closes")
			case "closes":
				must(t, cache.Close())
			}
		})
	must(t, err)
	put(run(0, 3), "inserts")
	put(run(10, 3), "evicts") // and is evicted by what it lets go
	put(run(20, 3), "last")
	equalSlices(t, "freed", freed,
		[]string{"inserts", "of no tokens", "evicts", "closes", "last"})
	_, err = cache.Stats()
	equal(t, "closed", errors.Is(err, radixkv.ErrClosed), true)
}

// A value may be anything, a nil too.
func TestSnapshotOfNil(t *testing.T) {
	freed := 0
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{}, func(error) { freed++ })
	must(t, err)
	_, err = cache.Insert(radixkv.SnapshotArgs[error]{Tokens: run(0, 2)})
	must(t, err)
	pin, err := cache.Match(base, run(0, 2))
	must(t, err)
	equal(t, "value", pin.Value(), nil)
	must(t, pin.Release())
	must(t, cache.Close())
	equal(t, "freed", freed, 1)
}

// M01: what is refused stays the caller's.
func TestSnapshotBadInput(t *testing.T) {
	s := newShelf(t, radixkv.SnapshotCacheConfig{})
	_, err := s.cache.Insert(radixkv.SnapshotArgs[int]{
		Tokens: []uint32{1, radixkv.TextIDLimit}, Value: 99,
	})
	wants(t, err, radixkv.InvalidArgument)
	_, err = s.cache.Insert(radixkv.SnapshotArgs[int]{
		Tokens: []uint32{1}, Value: 99, NextToken: 4,
	})
	wants(t, err, radixkv.InvalidArgument)
	_, err = s.cache.Insert(radixkv.SnapshotArgs[int]{
		Tokens: []uint32{1}, Namespace: radixkv.Namespace{LoRAID: 4},
	})
	wants(t, err, radixkv.InvalidArgument)
	equal(t, "freed", s.freed[99], 0)
	equal(t, "entries", s.stats().EntryCount, 0)
}

// M01, M03: a cache that was closed, is nil or zero; a pin outlives its cache.
func TestSnapshotClose(t *testing.T) {
	s := newShelf(t, radixkv.SnapshotCacheConfig{})
	s.put(run(0, 4))
	s.put(run(0, 6))
	pin := s.match(run(0, 4))
	must(t, s.cache.Close())
	must(t, s.cache.Close())
	equal(t, "freed", s.freed[0], 0)
	equal(t, "freed", s.freed[1], 1)
	equal(t, "value", pin.Value(), 0)
	must(t, pin.Release())
	wants(t, pin.Release(), radixkv.StalePin)
	equal(t, "freed", s.freed[0], 1)
	var none *radixkv.SnapshotCache[int]
	must(t, none.Close())
	for _, cache := range []*radixkv.SnapshotCache[int]{s.cache, none, {}} {
		for name, call := range map[string]func() error{
			"Insert": func() error {
				_, err := cache.Insert(radixkv.SnapshotArgs[int]{})
				return err
			},
			"Match":  func() error { _, err := cache.Match(base, nil); return err },
			"Probe":  func() error { _, err := cache.Probe(base, nil); return err },
			"Remove": func() error { _, err := cache.Remove(base, nil); return err },
			"Clear":  func() error { return cache.Clear() },
			"Stats":  func() error { _, err := cache.Stats(); return err },
			"Check":  func() error { return cache.Check() },
		} {
			if err := call(); !errors.Is(err, radixkv.ErrClosed) {
				t.Errorf("SnapshotCache.%s: %v", name, err)
			}
		}
	}
}

// S05, M03: what nobody released or closed is by the garbage collector.
func TestSnapshotFinalizers(t *testing.T) {
	var freed atomic.Int64
	func() {
		cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{},
			func(int) { freed.Add(1) })
		must(t, err)
		for i := 0; i < 3; i++ {
			_, err = cache.Insert(radixkv.SnapshotArgs[int]{Tokens: run(i, 2), Value: i})
			must(t, err)
		}
		_, err = cache.Match(base, run(0, 2))
		must(t, err)
	}()
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		runtime.GC()
		time.Sleep(wait)
		if freed.Load() == 3 {
			return
		}
	}
	t.Fatalf("%d of 3 values were freed", freed.Load())
}

// S09: many goroutines; each value is freed once, and never while a pin keeps it.
func TestSnapshotConcurrentUse(t *testing.T) {
	type state struct {
		length  int
		readers atomic.Int32
		freed   atomic.Bool
	}
	var made, freed atomic.Int64
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{EntryLimit: 5},
		func(s *state) {
			if s.readers.Load() != 0 || s.freed.Swap(true) {
				t.Error("freed while it is read, or twice")
			}
			freed.Add(1)
		})
	must(t, err)
	var all sync.WaitGroup
	for i := 0; i < 6; i++ {
		all.Add(1)
		random := rand.New(rand.NewSource(int64(i)))
		go func() {
			defer all.Done()
			for round := 0; round < 500 && !t.Failed(); round++ {
				tokens := run(100*random.Intn(4), 1+random.Intn(30))
				if random.Intn(3) == 0 {
					made.Add(1)
					_, err := cache.Insert(radixkv.SnapshotArgs[*state]{
						Tokens: tokens, Value: &state{length: len(tokens)},
					})
					if err != nil {
						t.Error(err)
					}
					continue
				}
				pin, err := cache.Match(base, tokens)
				if err != nil || pin == nil {
					continue
				}
				value := pin.Value()
				value.readers.Add(1)
				if value.freed.Load() || value.length != pin.TokenCount {
					t.Error("a value that is not there")
				}
				value.readers.Add(-1)
				if err := pin.Release(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	must(t, cache.Check())
	must(t, cache.Close())
	equal(t, "freed", freed.Load(), made.Load())
}
