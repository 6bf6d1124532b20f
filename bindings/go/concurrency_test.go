package radixkv_test

import (
	"errors"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// expected tells what goroutines that compete for pages may meet from what they may not.
func expected(err error) bool {
	return err == nil || errors.Is(err, radixkv.OutOfPages) || errors.Is(err, radixkv.OutOfSlots)
}

// live takes a random prompt of a few families through a whole life.
func live(cache *radixkv.Cache, random *rand.Rand) error {
	prompt := join(run(1000*random.Intn(3), 4+random.Intn(20)), run(random.Intn(9)*100, 3))
	sequence, state, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(prompt)})
	if err != nil {
		return err
	}
	if state.CopyCount > 0 {
		if err := sequence.ConfirmCopies(); err != nil {
			return err
		}
	}
	if _, err := sequence.Publish(state.PositionCount); err != nil {
		return err
	}
	if err := sequence.Append(radixkv.Text([]uint32{7, 8, 9})); !expected(err) {
		return err
	}
	return sequence.Release()
}

// K14, K16, K19, B09: sequences live, are probed and evicted by many goroutines, and each failure
// carries its own message although goroutines change threads.
func TestConcurrentUse(t *testing.T) {
	b := newBench(t, 4, 40, 0)
	var all sync.WaitGroup
	start := func(times int, do func(random *rand.Rand) error) {
		all.Add(1)
		seed := rand.Int63()
		go func() {
			defer all.Done()
			random := rand.New(rand.NewSource(seed))
			for i := 0; i < times; i++ {
				if err := do(random); !expected(err) {
					t.Error(err)
					return
				}
			}
		}()
	}
	for i := 0; i < 6; i++ {
		start(400, func(random *rand.Rand) error { return live(b.cache, random) })
	}
	for i := 0; i < 2; i++ {
		start(400, func(random *rand.Rand) error {
			_, _, err := b.cache.Probe(base, radixkv.Text(run(1000*random.Intn(3), 24)))
			return err
		})
	}
	start(200, func(random *rand.Rand) error {
		_, err := b.cache.Evict(random.Intn(6), nil)
		return err
	})
	start(200, func(random *rand.Rand) error {
		found, err := b.cache.Match(base, radixkv.Text(run(1000, 24)), radixkv.MatchLock, nil)
		if err == nil && found.Lock != 0 {
			err = b.cache.Unlock(found.Lock)
		}
		return err
	})
	start(200, func(*rand.Rand) error {
		if _, err := b.cache.Stats(); err != nil {
			return err
		}
		return b.table.Check()
	})
	for i := 0; i < 2; i++ {
		slot := uint32(1000 + i)
		want := "" // each goroutine asks for another slot: a stolen message would name the other's
		start(400, func(*rand.Rand) error {
			_, err := b.table.Capacity(slot)
			var e *radixkv.Error
			if !errors.As(err, &e) || e.Status != radixkv.InvalidArgument {
				return errors.New("capacity of a slot that is not")
			}
			if want == "" {
				want = e.Message
			}
			if e.Message != want {
				return errors.New("somebody else's message: " + e.Message)
			}
			return nil
		})
	}
	all.Wait()
	equal(t, "private pages", b.sound().PrivatePageCount, 0)
}

// M03: Close races calls. Each call either happens whole or says that the handle is closed.
func TestCloseRacesCalls(t *testing.T) {
	for round := 0; round < 30; round++ {
		table, err := radixkv.NewPageTable(
			radixkv.PageTableConfig{PageSize: 4, PageCount: 64, SlotCount: 16})
		must(t, err)
		cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
		must(t, err)
		var all sync.WaitGroup
		var calls atomic.Int64
		for i := 0; i < 4; i++ {
			all.Add(1)
			random := rand.New(rand.NewSource(int64(i)))
			go func() {
				defer all.Done()
				for {
					err := live(cache, random)
					if errors.Is(err, radixkv.ErrClosed) {
						return
					}
					if !expected(err) {
						t.Error(err)
						return
					}
					calls.Add(1)
				}
			}()
		}
		for i := 0; i < 2; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for calls.Load() < 20 && !t.Failed() {
					if err := table.Check(); err != nil {
						t.Error(err)
					}
				}
				cache.Close()
			}()
		}
		all.Wait()
		stats, err := table.Stats()
		must(t, err)
		equal(t, "free pages", stats.FreePageCount, stats.TotalPageCount)
		must(t, table.Close())
	}
}
