//go:build radixkv_fault_injection

package radixkv_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// M02: a panic inside the library becomes an error, is logged, and poisons its handles; the process
// and other handles live.
func TestPanicInTheLibrary(t *testing.T) {
	healthy := newBench(t, 4, 16, 0)
	for i := 0; i < 2; i++ {
		var lines []string
		radixkv.SetLog(radixkv.LogError, func(level radixkv.LogLevel, message string) {
			equal(t, "level", level, radixkv.LogError)
			lines = append(lines, message)
		})
		table, err := radixkv.NewPageTable(radixkv.PageTableConfig{PageSize: 4, PageCount: 16})
		must(t, err)
		cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
		must(t, err)

		wants(t, cache.FaultPanic(), radixkv.Internal)
		equal(t, "lines", len(lines), 1)
		if !strings.Contains(lines[0], ".rs:") {
			t.Errorf("%q does not name the place", lines[0])
		}
		_, err = cache.Stats()
		wants(t, err, radixkv.Poisoned)
		_, _, err = cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(0, 4))})
		wants(t, err, radixkv.Poisoned)
		wants(t, table.AllocatePages(make([]uint32, 1)), radixkv.Poisoned)
		statuses, err := cache.ReleaseMany([]radixkv.SequenceID{1, 2})
		wants(t, err, radixkv.Poisoned)
		equalSlices(t, "statuses", statuses, []radixkv.Status{radixkv.Poisoned, radixkv.Poisoned})
		healthy.store(base, radixkv.Text(run(100, 4)))
		healthy.sound()
		must(t, cache.Close())
		must(t, table.Close())

		radixkv.SetLog(radixkv.LogOff, nil)
		_, err = healthy.cache.Evict(1, nil)
		must(t, err)
		equal(t, "lines after the sink went", len(lines), 1)
	}
}

// M08: a panic in the log sink may not run through the library: it ends the program, which here is
// a second run of this test.
func TestPanicInTheLogSink(t *testing.T) {
	if os.Getenv("RADIXKV_TEST_PANIC") != "" {
		b := newBench(t, 4, 16, 0)
		radixkv.SetLog(radixkv.LogError, func(radixkv.LogLevel, string) { panic("disk full") })
		_ = b.cache.FaultPanic()
		return
	}
	again := exec.Command(os.Args[0], "-test.run=^TestPanicInTheLogSink$")
	again.Env = append(os.Environ(), "RADIXKV_TEST_PANIC=1")
	output, err := again.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "panic in a log sink: disk full") {
		t.Fatalf("%v\n%s", err, output)
	}
}

// M02: a panic inside a snapshot cache.
func TestPanicInASnapshotCache(t *testing.T) {
	radixkv.SetLog(radixkv.LogError, func(radixkv.LogLevel, string) {})
	defer radixkv.SetLog(radixkv.LogOff, nil)
	freed := 0
	cache, err := radixkv.NewSnapshotCache(radixkv.SnapshotCacheConfig{}, func(int) { freed++ })
	must(t, err)
	_, err = cache.Insert(radixkv.SnapshotArgs[int]{Tokens: run(0, 3)})
	must(t, err)
	wants(t, cache.FaultPanic(), radixkv.Internal)
	_, err = cache.Match(base, run(0, 3))
	wants(t, err, radixkv.Poisoned)
	must(t, cache.Close())
	equal(t, "freed", freed, 1)
}
