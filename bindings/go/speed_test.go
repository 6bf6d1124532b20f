package radixkv_test

import (
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// The hot path leaves no garbage: all of a step's calls, with slices that the engine keeps.
func TestHotPathDoesNotAllocate(t *testing.T) {
	b := newBench(t, 16, 256, 0)
	prompt := radixkv.Text(run(0, 1024))
	b.store(base, prompt)
	tenant := radixkv.Namespace{Salt: [32]byte{1}}.WithLoRA(3)
	pages := make([]uint32, 80)
	decoded := []uint32{5}
	rows := make([]radixkv.BatchRow, 1)
	arrays := radixkv.BatchArrays{
		IndPtr: make([]int32, 2), Indices: make([]int32, 80), LastPageLen: make([]int32, 1),
	}
	positions, mapping := []uint64{1023, 1024}, make([]int64, 2)
	r := newRunnerBench(t, 4, 9)
	running, _ := r.begin(run(0, 9))
	chunk := chunk{running, run(0, 9), 0, 9}
	step, planRows := newTensors(0, chunk), planRows(chunk)
	planRows[0].Regions = []radixkv.Region{{Start: 2, End: 5}}
	lastPage := int32(0)
	var err error
	check := func(next error) {
		if err == nil {
			err = next
		}
	}
	for name, call := range map[string]func(){
		"Match": func() {
			_, e := b.cache.Match(base, prompt, 0, pages)
			check(e)
		},
		"Match with a lock": func() {
			found, e := b.cache.Match(base, prompt, radixkv.MatchLock, pages)
			check(e)
			check(b.cache.Unlock(found.Lock))
		},
		"Probe": func() {
			_, _, e := b.cache.Probe(tenant, prompt)
			check(e)
		},
		"the life of a sequence": func() {
			sequence, state, e := b.cache.Begin(radixkv.BeginArgs{Tokens: prompt})
			check(e)
			check(sequence.ConfirmCopies())
			check(sequence.Append(radixkv.Text(decoded)))
			_, e = sequence.Publish(state.PositionCount)
			check(e)
			state, e = sequence.Info()
			check(e)
			rows[0] = radixkv.BatchRow{Slot: state.Slot, PositionCount: 1025}
			_, e = b.table.Batch(rows, arrays)
			check(e)
			check(b.table.SlotMapping(state.Slot, positions, mapping))
			_, e = b.table.Row(state.Slot, 0, pages)
			check(e)
			check(sequence.Truncate(1024))
			check(sequence.Release())
		},
		"pages of the caller": func() {
			check(b.table.AllocatePages(pages[:8]))
			check(b.table.FreePages(pages[:8]))
			_, e := b.table.Stats()
			check(e)
			_, e = b.cache.Stats()
			check(e)
		},
		"a step of attention": func() {
			check(r.plan.Set(planRows))
			check(r.runner.AppendPrefill(r.plan, step.args(0)))
			check(r.plan.View(func(arrays radixkv.PlanArrays) { lastPage = arrays.LastPageLen[0] }))
		},
	} {
		count := testing.AllocsPerRun(100, call)
		must(t, err)
		equal(t, "allocations of "+name, count, 0)
	}
	equal(t, "last page", lastPage, 1)
}

func BenchmarkMatch(b *testing.B) {
	for name, length := range map[string]int{"16": 16, "1024": 1024, "16384": 16384} {
		b.Run(name, func(b *testing.B) {
			bench := newBench(b, 16, 2048, 0)
			prompt := radixkv.Text(run(0, length))
			bench.store(base, prompt)
			pages := make([]uint32, length/16)
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				if _, err := bench.cache.Match(base, prompt, 0, pages); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkProbe(b *testing.B) {
	bench := newBench(b, 16, 2048, 0)
	prompt := radixkv.Text(run(0, 1024))
	bench.store(base, prompt)
	b.ReportAllocs()
	b.RunParallel(func(each *testing.PB) {
		for each.Next() {
			if _, _, err := bench.cache.Probe(base, prompt); err != nil {
				b.Error(err)
			}
		}
	})
}

// A request whose prompt is cached but for its last 24 tokens, from begin to release.
func BenchmarkBeginPublishRelease(b *testing.B) {
	bench := newBench(b, 16, 2048, 0)
	prompt := run(0, 1024)
	bench.store(base, radixkv.Text(prompt[:1000]))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		prompt[1000] = uint32(i) // another question about the same document
		sequence, state, err := bench.cache.Begin(
			radixkv.BeginArgs{Tokens: radixkv.Text(prompt)})
		if err != nil {
			b.Fatal(err)
		}
		if state.CopyCount > 0 {
			if err := sequence.ConfirmCopies(); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := sequence.Publish(state.PositionCount); err != nil {
			b.Fatal(err)
		}
		if err := sequence.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

// What a failure costs: the message is copied out of the same crossing.
func BenchmarkFailure(b *testing.B) {
	bench := newBench(b, 16, 16, 0)
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		if _, err := bench.cache.Lock(1); err == nil {
			b.Fatal("locked a node that is not")
		}
	}
}
