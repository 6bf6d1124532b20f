package radixkv_test

import (
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// copying is a cache of which a copy goes on.
func copying(t *testing.T, table *radixkv.PageTable) (*radixkv.Cache, radixkv.CopyJob) {
	t.Helper()
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{JournalBytes: 1 << 16})
	must(t, err)
	must(t, cache.AttachTiers(radixkv.TierConfig{
		PageBytes: tierPageBytes, HostBytes: 16 * tierPageBytes,
	}))
	sequence, _, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(1, 4))})
	must(t, err)
	_, err = sequence.Publish(4)
	must(t, err)
	must(t, sequence.Release())
	return cache, polled(t, cache)
}

// polled is the next copy of a cache.
func polled(t *testing.T, cache *radixkv.Cache) radixkv.CopyJob {
	t.Helper()
	for {
		var jobs [1]radixkv.CopyJob
		count, _, err := cache.Poll(jobs[:], nil)
		must(t, err)
		if count == 1 {
			return jobs[0]
		}
		time.Sleep(time.Millisecond)
	}
}

func smallTable(t *testing.T) *radixkv.PageTable {
	t.Helper()
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{PageSize: 4, PageCount: 9})
	must(t, err)
	return table
}

// write is the engine's part of a copy to host memory.
func write(job radixkv.CopyJob) {
	host := unsafe.Slice((*byte)(job.Host), job.ByteCount)
	for i := range host {
		host[i] = byte(i)
	}
}

// M03, T02: copies go on in memory of the cache's, so it is not closed before they have ended.
func TestCloseBesideCopies(t *testing.T) {
	table := smallTable(t)
	cache, job := copying(t, table)
	for range [2]int{} {
		names(t, cache.Close(), radixkv.InvalidState, "1 copies")
	}
	_, err := cache.DetachTiers(0)
	wants(t, err, radixkv.InvalidState)
	write(job)
	// Nothing has changed.
	wants(t, cache.Complete([]uint64{job.Job, job.Job}, true), radixkv.InvalidArgument)
	wants(t, cache.Close(), radixkv.InvalidState)
	must(t, cache.Complete([]uint64{job.Job}, true))
	must(t, cache.Check())
	must(t, cache.Close())
	_, _, err = cache.Poll(nil, nil)
	equal(t, "closed", err, radixkv.ErrClosed)
	must(t, table.Close())
}

// M03, T02: Close races Poll. What Poll has given is good until it is completed.
func TestCloseRacesPoll(t *testing.T) {
	for round := 0; round < 20; round++ {
		table := smallTable(t)
		cache, job := copying(t, table)
		must(t, cache.Complete([]uint64{job.Job}, true))
		sequence, _, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(50, 20))})
		must(t, err)
		_, err = sequence.Publish(20)
		must(t, err)
		var all sync.WaitGroup
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				var jobs [1]radixkv.CopyJob
				count, _, err := cache.Poll(jobs[:], nil)
				if err == radixkv.ErrClosed {
					return
				}
				if err == nil && count == 1 {
					write(jobs[0])
					err = cache.Complete([]uint64{jobs[0].Job}, true)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		}()
		time.Sleep(time.Duration(round%4) * 100 * time.Microsecond)
		for err := cache.Close(); err != nil; err = cache.Close() {
			wants(t, err, radixkv.InvalidState)
		}
		all.Wait()
		must(t, table.Close())
	}
}

// M03, T02: nor does the garbage collector close it: a goroutine may copy that knows nothing of the
// cache.
func TestFinalizerBesideCopies(t *testing.T) {
	copied, other := smallTable(t), smallTable(t)
	job := func() radixkv.CopyJob {
		_, job := copying(t, copied)
		cache, job2 := copying(t, other)
		must(t, cache.Complete([]uint64{job2.Job}, true))
		return job
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		cache, err := radixkv.NewCache(other, radixkv.CacheConfig{})
		if err == nil { // the one without copies was closed
			must(t, cache.Close())
			break
		}
		wants(t, err, radixkv.Busy)
		if time.Now().After(end) {
			t.Fatal("the finalizer of the cache did not run")
		}
	}
	write(job)
	_, err := radixkv.NewCache(copied, radixkv.CacheConfig{})
	wants(t, err, radixkv.Busy)
	must(t, other.Close())
}
