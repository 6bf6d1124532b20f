package radixkv_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// floats is a layer's K or V over all pages.
func floats(start unsafe.Pointer, memory radixkv.KVMemory, pages int) []float32 {
	return unsafe.Slice((*float32)(start), pages*int(memory.PageStride))
}

func TestRunnerStats(t *testing.T) {
	b := newRunnerBench(t, 4, 9)
	pageBytes, err := radixkv.RunnerSupports(smallRunner, 4)
	must(t, err)
	equal(t, "bytes of a page", pageBytes, 2*layers*4*kvWidth*4)
	stats, err := b.runner.Stats()
	must(t, err)
	equal(t, "stats", stats, radixkv.RunnerStats{
		ThreadCount: 2, KVBytes: 9 * pageBytes, PageBytes: pageBytes,
	})
	memory, err := b.runner.KVMemory(1)
	must(t, err)
	equal(t, "page stride", memory.PageStride, 4*kvWidth)
	config := smallRunner
	config.KVLayout, config.HeadDim = radixkv.KVLayoutHND, 0 // 128
	other := newRunnerBenchWith(t, 4, 9, config)
	memory, err = other.runner.KVMemory(0)
	must(t, err)
	equal(t, "position stride", memory.PositionStride, 128)
	equal(t, "head stride", memory.HeadStride, 4*128)
}

// M01: refused with the name of the field.
func TestBadRunners(t *testing.T) {
	b := newBench(t, 4, 9, 0)
	for field, c := range map[string]struct {
		change func(config *radixkv.RunnerConfig)
		want   radixkv.Status
	}{
		"layer_count": {func(c *radixkv.RunnerConfig) { c.LayerCount = 0 },
			radixkv.InvalidArgument},
		"query_head_count": {func(c *radixkv.RunnerConfig) { c.QueryHeadCount = 0 },
			radixkv.InvalidArgument},
		"kv_head_count": {func(c *radixkv.RunnerConfig) { c.KVHeadCount = 3 },
			radixkv.InvalidArgument},
		"head_dim": {func(c *radixkv.RunnerConfig) { c.HeadDim = 72 }, radixkv.Unsupported},
		"dtype":    {func(c *radixkv.RunnerConfig) { c.DType = 9 }, radixkv.InvalidArgument},
		"kv_dtype": {func(c *radixkv.RunnerConfig) { c.KVDType = radixkv.DTypeF16 },
			radixkv.Unsupported},
		"kv_layout": {func(c *radixkv.RunnerConfig) { c.KVLayout = 2 }, radixkv.InvalidArgument},
		"flags":     {func(c *radixkv.RunnerConfig) { c.Flags = 4 }, radixkv.InvalidArgument},
		"device":    {func(c *radixkv.RunnerConfig) { c.Device = 1 }, radixkv.InvalidArgument},
		"backend":   {func(c *radixkv.RunnerConfig) { c.Backend = 7 }, radixkv.InvalidArgument},
	} {
		config := smallRunner
		c.change(&config)
		_, err := radixkv.NewRunner(b.table, config)
		names(t, err, c.want, field)
		_, err = radixkv.RunnerSupports(config, 4)
		names(t, err, c.want, field)
	}
	_, err := radixkv.RunnerSupports(smallRunner, radixkv.PageSizeMax+1)
	names(t, err, radixkv.InvalidArgument, "page_size")
	config := smallRunner
	config.KVLayers = make([]radixkv.KVMemory, 1)
	_, err = radixkv.NewRunner(b.table, config)
	names(t, err, radixkv.InvalidArgument, "KVLayers")
	config.KVLayers = make([]radixkv.KVMemory, layers)
	_, err = radixkv.NewRunner(b.table, config)
	names(t, err, radixkv.InvalidArgument, "kv_layers[0]")
}

// Memory of the engine's, here pinned Go memory.
func TestKVMemoryOfTheEngine(t *testing.T) {
	b := newBench(t, 4, 9, 0)
	const pages, stride = 9, 4 * kvWidth
	var pins runtime.Pinner
	defer pins.Unpin()
	config := smallRunner
	var values []float32
	for layer := 0; layer < layers; layer++ {
		k, v := make([]float32, pages*stride), make([]float32, pages*stride)
		pins.Pin(&k[0])
		pins.Pin(&v[0])
		values = v
		config.KVLayers = append(config.KVLayers, radixkv.KVMemory{
			K: unsafe.Pointer(&k[0]), V: unsafe.Pointer(&v[0]),
			PageStride: stride, PositionStride: kvWidth, HeadStride: headDim,
		})
	}
	runner, err := radixkv.NewRunner(b.table, config)
	must(t, err)
	plan, err := radixkv.NewPlan(b.table)
	must(t, err)
	bench := &runnerBench{b, runner, plan}
	stats, err := runner.Stats()
	must(t, err)
	equal(t, "bytes of its own", stats.KVBytes, 0)
	sequence, state := b.begin(run(1, 6))
	bench.step(chunk{sequence, run(1, 6), 0, 6})
	page := b.row(state.Slot)[1]
	equal(t, "V of position 5", values[int(page)*stride+kvWidth+7],
		element(kindV, layers-1, 6, 5, 7))
	must(t, sequence.Release())
	must(t, plan.Close())
	must(t, runner.Close())
}

// B08: pages that the engine copies itself.
func TestCopyPages(t *testing.T) {
	b := newRunnerBench(t, 4, 9)
	pages := b.pages(2)
	memory, err := b.runner.KVMemory(1)
	must(t, err)
	k := floats(memory.K, memory, 9)
	from, to := int(pages[0])*4*kvWidth, int(pages[1])*4*kvWidth
	for i := 0; i < 4*kvWidth; i++ {
		k[from+i] = float32(i + 1)
	}
	must(t, b.runner.CopyPages([]radixkv.PageCopy{
		{SourcePage: pages[0], TargetPage: pages[1], PositionCount: 3},
	}))
	equal(t, "last element that was copied", k[to+3*kvWidth-1], 3*kvWidth)
	equal(t, "first element that was not", k[to+3*kvWidth], 0)
	names(t, b.runner.CopyPages([]radixkv.PageCopy{
		{SourcePage: pages[0], TargetPage: pages[1], PositionCount: 5},
	}), radixkv.InvalidArgument, "copies[0]")
	_, err = b.runner.KVMemory(layers)
	names(t, err, radixkv.InvalidArgument, "layer")
	must(t, b.table.FreePages(pages))
}

// Copies of tiers are looked at together: one that is refused is named, and nothing was copied.
func TestCopyTierPages(t *testing.T) {
	b := newRunnerBench(t, 4, 9)
	stats, err := b.runner.Stats()
	must(t, err)
	// C memory for the host's: what another runner has of a layer is more than a page.
	other, err := radixkv.NewRunner(b.table, smallRunner)
	must(t, err)
	defer other.Close()
	memory, err := other.KVMemory(0)
	must(t, err)
	host := floats(memory.K, memory, 9)
	ids := run(1, 5)
	sequence, state := b.begin(ids)
	b.step(chunk{sequence, ids, 0, 5})
	job := radixkv.CopyJob{
		Host: memory.K, ByteCount: stats.PageBytes, Page: b.row(state.Slot)[0],
		Direction: radixkv.CopyStore,
	}
	bad := job
	bad.Page = 99
	names(t, b.runner.CopyTierPages([]radixkv.CopyJob{job, bad}), radixkv.InvalidArgument, "jobs[1]")
	equal(t, "the first key", host[0], 0)
	must(t, b.runner.CopyTierPages(nil))
	must(t, b.runner.CopyTierPages([]radixkv.CopyJob{job}))
	equal(t, "the first key", host[0], element(kindK, 0, ids[0], 0, 0))
	// The other way, to another page.
	job.Page, job.Direction = b.row(state.Slot)[1], radixkv.CopyLoad
	must(t, b.runner.CopyTierPages([]radixkv.CopyJob{job}))
	memory, err = b.runner.KVMemory(0)
	must(t, err)
	keys := floats(memory.K, memory, 9)[uint64(job.Page)*memory.PageStride:]
	equal(t, "the first key, loaded", keys[0], host[0])
	must(t, sequence.Release())
}

// byGoroutines is a ParallelFor that counts its calls.
func byGoroutines(calls *atomic.Int64) radixkv.ParallelFor {
	return func(taskCount int, run func(index int)) {
		calls.Add(1)
		var all sync.WaitGroup
		for i := 0; i < taskCount; i++ {
			all.Add(1)
			go func(i int) {
				defer all.Done()
				run(i)
			}(i)
		}
		all.Wait()
	}
}

// Steps on the engine's threads, from several goroutines at once, each with a plan of its own.
func TestGoroutinesCompute(t *testing.T) {
	var calls atomic.Int64
	config := smallRunner
	config.ParallelFor = byGoroutines(&calls)
	b := newRunnerBenchWith(t, 4, 64, config)
	var all sync.WaitGroup
	for i := 0; i < 3; i++ {
		ids := run(100*i, 23)
		sequence, _ := b.begin(ids)
		plan, err := radixkv.NewPlan(b.table)
		must(t, err)
		all.Add(1)
		go func() {
			defer all.Done()
			defer plan.Close()
			for start := 0; start < 23; start += 8 {
				c := chunk{sequence, ids, start, 8}
				if start == 16 {
					c.count = 7
				}
				if err := plan.Set(planRows(c)); err != nil {
					t.Error(err)
					return
				}
				for layer := 0; layer < layers; layer++ {
					computed := newTensors(layer, c)
					err := b.runner.AppendPrefill(plan, computed.args(layer))
					if err != nil {
						t.Error(err)
						return
					}
					at := 6*queryHeads + 1
					want, _ := naive(layer, ids, start+6, 1, 0, start+7)
					if !near(computed.out[at*headDim+5], want[5], 2e-5) {
						t.Errorf("%v, want %v", computed.out[at*headDim+5], want[5])
					}
				}
				if _, err := sequence.Publish(start + c.count); err != nil {
					t.Error(err)
				}
			}
			if err := sequence.Release(); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if calls.Load() == 0 {
		t.Fatal("ParallelFor was not called")
	}
}

// M08: a panic in a ParallelFor may not run through the library: it ends the program, which here is
// a second run of this test.
func TestPanicInParallelFor(t *testing.T) {
	if os.Getenv("RADIXKV_TEST_PANIC") != "" {
		config := smallRunner
		config.ParallelFor = func(int, func(int)) { panic("no goroutine left") }
		b := newRunnerBenchWith(t, 4, 9, config)
		sequence, _ := b.begin(run(1, 5))
		b.step(chunk{sequence, run(1, 5), 0, 5})
		return
	}
	again := exec.Command(os.Args[0], "-test.run=^TestPanicInParallelFor$")
	again.Env = append(os.Environ(), "RADIXKV_TEST_PANIC=1")
	output, err := again.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "panic in a ParallelFor: no goroutine") {
		t.Fatalf("%v\n%s", err, output)
	}
}

// M03, J04: table and runner may be closed before the plan, which goes on without them.
func TestCloseRunnerFirst(t *testing.T) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{PageSize: 4, PageCount: 9})
	must(t, err)
	var calls atomic.Int64
	config := smallRunner
	config.ParallelFor = byGoroutines(&calls)
	runner, err := radixkv.NewRunner(table, config)
	must(t, err)
	slot, err := table.AllocateSlot()
	must(t, err)
	must(t, table.Reserve(slot, 4))
	plan, err := radixkv.NewPlan(table)
	must(t, err)
	must(t, table.Close())
	must(t, runner.Close())
	must(t, plan.Set([]radixkv.PlanRow{{Slot: slot, Count: 4}}))
	must(t, plan.View(func(arrays radixkv.PlanArrays) {
		equal(t, "new positions", arrays.PositionCount, 4)
	}))
	must(t, plan.Close())
}

// M03: what nobody closed is closed by the garbage collector. That is seen from the ParallelFor,
// which goes with its last user.
func TestRunnerFinalizers(t *testing.T) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{PageSize: 4, PageCount: 9})
	must(t, err)
	defer table.Close()
	gone := make(chan bool)
	func() {
		held := new([64]int)
		runtime.SetFinalizer(held, func(*[64]int) { close(gone) })
		config := smallRunner
		config.ParallelFor = func(int, func(int)) { held[0]++ }
		_, err := radixkv.NewRunner(table, config)
		must(t, err)
	}()
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(wait):
		}
	}
	t.Fatal("the finalizer of the runner did not run")
}

// M08: nor may its goroutine end there, as by t.FailNow.
func TestGoexitInParallelFor(t *testing.T) {
	if os.Getenv("RADIXKV_TEST_GOEXIT") != "" {
		config := smallRunner
		config.ParallelFor = func(int, func(int)) { runtime.Goexit() }
		b := newRunnerBenchWith(t, 4, 9, config)
		sequence, _ := b.begin(run(1, 5))
		b.step(chunk{sequence, run(1, 5), 0, 5})
		return
	}
	again := exec.Command(os.Args[0], "-test.run=^TestGoexitInParallelFor$", "-test.timeout=30s")
	again.Env = append(os.Environ(), "RADIXKV_TEST_GOEXIT=1")
	output, err := again.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "panic in a ParallelFor: runtime.Goexit") {
		t.Fatalf("%v\n%s", err, output)
	}
}
