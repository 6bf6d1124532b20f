package radixkv_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

const tierPageBytes = 32

// carry is a step of an engine: it copies what there is to copy.
func (b *bench) carry(kv []byte) []radixkv.FetchEnd {
	b.Helper()
	jobs, ends := make([]radixkv.CopyJob, 8), make([]radixkv.FetchEnd, 8)
	jobCount, endCount, err := b.cache.Poll(jobs, ends)
	must(b, err)
	for _, job := range jobs[:jobCount] {
		page := kv[job.Page*tierPageBytes:][:tierPageBytes]
		host := unsafe.Slice((*byte)(job.Host), job.ByteCount)
		if job.Direction == radixkv.CopyLoad {
			copy(page, host)
		} else {
			copy(host, page)
		}
		must(b, b.cache.Complete([]uint64{job.Job}, true))
	}
	time.Sleep(time.Millisecond)
	return ends[:endCount]
}

// prefetched brings a prompt to host memory.
func (b *bench) prefetched(prompt radixkv.Tokens) (prefetch uint64) {
	b.Helper()
	for {
		begun, err := b.cache.Prefetch(base, prompt, radixkv.NoDeadline, 0)
		must(b, err)
		if begun.Prefetch != 0 {
			prefetch = begun.Prefetch
		}
		if begun.HostPositionCount == 16 {
			return prefetch
		}
		time.Sleep(time.Millisecond)
	}
}

// T02, T09, T18: what was evicted comes back from host memory, and after a restart from the disk.
func TestTiers(t *testing.T) {
	directory := t.TempDir()
	prompt := radixkv.Tokens{IDs: run(1, 17)}
	for round, flags := range []radixkv.TierFlags{0, radixkv.TiersAgree} {
		b := newBenchWith(t, 4, 33, radixkv.CacheConfig{JournalBytes: 1 << 16})
		kv := make([]byte, 34*tierPageBytes)
		config := radixkv.TierConfig{
			Flags: flags, PageBytes: tierPageBytes, HostBytes: 16 * tierPageBytes,
			Directory: directory, DiskBytes: 1 << 20, CommitIntervalMS: 1,
		}
		must(t, b.cache.AttachTiers(config))
		wants(t, b.cache.AttachTiers(config), radixkv.InvalidState)
		if round == 0 {
			b.request(base, prompt)
			for {
				stats, err := b.cache.TierStats()
				must(t, err)
				if stats.Disk.StoredPageCount == 4 {
					break
				}
				b.carry(kv)
			}
			_, err := b.cache.Evict(4, nil)
			must(t, err)
		}
		for late := (radixkv.PrefetchResult{}); late.PositionCount != 16; {
			var err error
			late, err = b.cache.Prefetch(base, prompt, -time.Millisecond, 0)
			must(t, err)
			equal(t, "brought after the deadline", late.Prefetch, 0)
		}
		prefetched := b.prefetched(prompt)
		sequence, _, err := b.cache.Begin(radixkv.BeginArgs{Tokens: prompt})
		must(t, err)
		var fetch radixkv.FetchResult
		for fetch.PositionCount == 0 { // until the thread has seen the journal
			fetch, err = sequence.Fetch(radixkv.NoDeadline, radixkv.FetchLookOnly)
			must(t, err)
		}
		equal(t, "positions", fetch.PositionCount, 16)
		fetch, err = sequence.Fetch(time.Minute, 0)
		must(t, err)
		equal(t, "open", fetch.IsOpen, true)
		var ends []radixkv.FetchEnd
		for len(ends) == 0 {
			ends = b.carry(kv)
		}
		equal(t, "brought", ends[0].BroughtPageCount, 4)
		stats, err := b.cache.TierStats()
		must(t, err)
		if stats.PrefetchCount < 1 || stats.PrefetchedDiskPageCount != uint64(4*round) {
			t.Errorf("%+v", stats)
		}
		must(t, b.cache.CancelPrefetch(prefetched))
		wants(t, b.cache.CancelPrefetch(1<<40), radixkv.InvalidArgument)
		equal(t, "in time", ends[0].Flags&radixkv.FetchEndLate, 0)
		if flags == radixkv.TiersAgree {
			agreed, err := sequence.Agree(9)
			must(t, err)
			equal(t, "agreed", agreed, 8)
		}
		must(t, sequence.Release())
		must(t, b.cache.ShrinkTiers(0, math.MaxUint64))
		stats, err = b.cache.TierStats()
		must(t, err)
		equal(t, "host pages", stats.Host.PageCount, 0)
		equal(t, "disk has some", stats.Disk.PageCount > 0, true)
		flushed, err := b.cache.FlushTiers(time.Minute)
		must(t, err)
		equal(t, "flushed", flushed, true)
		written, err := b.cache.DetachTiers(time.Minute)
		must(t, err)
		equal(t, "written", written, true)
		_, err = b.cache.FlushTiers(0)
		wants(t, err, radixkv.InvalidState)
	}
}

// T16: pools are told one by one, and copies name their groups.
func TestTiersOfSeveralPools(t *testing.T) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: 4, SlotCount: 4,
		Groups:         []radixkv.GroupConfig{radixkv.FullGroup(0), radixkv.WindowGroup(1, 6)},
		PoolPageCounts: []uint32{20, 20},
	})
	must(t, err)
	defer table.Close()
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{JournalBytes: 1 << 16})
	must(t, err)
	defer cache.Close()
	config := radixkv.TierConfig{PageBytes: tierPageBytes, HostBytes: 16 * tierPageBytes}
	wants(t, cache.AttachTiers(config), radixkv.InvalidArgument)
	config = radixkv.TierConfig{Pools: []radixkv.TierPoolConfig{
		{PageBytes: tierPageBytes, HostBytes: 16 * tierPageBytes}, {PageBytes: 8, HostBytes: 128},
	}}
	must(t, cache.AttachTiers(config))
	sequence, _, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(1, 17))})
	must(t, err)
	_, err = sequence.Publish(17)
	must(t, err)
	var counts [2]int
	for counts[0]+counts[1] < 8 {
		var jobs [8]radixkv.CopyJob
		count, _, err := cache.Poll(jobs[:], nil)
		must(t, err)
		for _, job := range jobs[:count] {
			equal(t, "bytes", job.ByteCount, []uint64{tierPageBytes, 8}[job.Group])
			counts[job.Group]++
			must(t, cache.Complete([]uint64{job.Job}, true))
		}
		time.Sleep(time.Millisecond)
	}
	equal(t, "pages of each group", counts, [2]int{4, 4})
	must(t, sequence.Release())
}

// Refuses memory of one size, which is that of 13 pools.
const refusesPools = `
#include <radixkv.h>

extern void *__libc_calloc(size_t count, size_t size);

void *calloc(size_t count, size_t size) {
    return count == 13 && size == sizeof(rkv_tier_pool_config) ? NULL : __libc_calloc(count, size);
}
`

// T16: without memory in C for a list of pools the library is asked all the same. In a second run
// of this test.
func TestPoolsNeedNoMemoryOfC(t *testing.T) {
	if os.Getenv("LD_PRELOAD") != "" {
		b := newBenchWith(t, 4, 9, radixkv.CacheConfig{JournalBytes: 1 << 16})
		pools := make([]radixkv.TierPoolConfig, 13)
		names(t, b.cache.AttachTiers(radixkv.TierConfig{Pools: pools}), radixkv.InvalidArgument,
			"pool_count")
		return
	}
	headerText(t) // or it is skipped
	compiler, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("SKIPPED: no `cc` on the PATH, or no LD_PRELOAD")
	}
	source := filepath.Join(t.TempDir(), "calloc.c")
	must(t, os.WriteFile(source, []byte(refusesPools), 0o600))
	library := source + ".so"
	output, err := exec.Command(compiler, "-I../../include", "-shared", "-fPIC", "-o", library,
		source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	again := exec.Command(os.Args[0], "-test.run=^TestPoolsNeedNoMemoryOfC$")
	again.Env = append(os.Environ(), fmt.Sprint("LD_PRELOAD=", library))
	if output, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}
