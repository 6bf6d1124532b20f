// Attention by the library, in Go: a toy model computes a prompt in chunks, a second prompt reuses
// the start of the first, both decode in one batch, and the result is what it is without a cache.
// The same stands in the repository's examples folder in C, C++ and Rust, and each prints the same
// text.
//
//	go run ./examples/attention
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"slices"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

const (
	layers     = 2
	headDim    = 64
	queryHeads = 2
	width      = queryHeads * headDim
	pageSize   = 16
	pageCount  = 32
	vocabulary = 100
	decoded    = 6
	shared     = 36
)

func main() { tell(os.Stdout) }

// must ends the program: nothing here may fail.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// number is in [-1, 1): the model's weights, the same in every language.
func number(row, column uint32) float32 {
	x := row*2654435761 + column*40503 + 12345
	x ^= x >> 15
	x *= 2246822519
	x ^= x >> 13
	return float32(x>>8)/8388608 - 1
}

func embed(x []float32, id uint32, position int) []float32 {
	for i := uint32(0); i < width; i++ {
		x = append(x, number(id, i)+number(1000+uint32(position), i)/4)
	}
	return x
}

// project makes queries, keys or values: here, elements of the states in another order.
func project(x []float32, size, factor, offset int) []float32 {
	var out []float32
	for start := 0; start < len(x); start += width {
		for i := 0; i < size; i++ {
			out = append(out, x[start+(i*factor+offset)%width])
		}
	}
	return out
}

func mostLikely(x []float32) uint32 {
	best, most := uint32(0), -1e9
	for id := uint32(0); id < vocabulary; id++ {
		logit := 0.0
		for i := uint32(0); i < width; i++ {
			logit += float64(x[i]) * float64(number(5000+id, i))
		}
		if logit > most {
			best, most = id, logit
		}
	}
	return best
}

var shapes = radixkv.RunnerConfig{
	LayerCount: layers, QueryHeadCount: queryHeads, KVHeadCount: 1, HeadDim: headDim,
	// So that a request's numbers do not depend on what else is in a batch.
	Flags: radixkv.RunnerBatchInvariant,
}

// engine is the books, the memory behind them, and the plan of a step.
type engine struct {
	table  *radixkv.PageTable
	cache  *radixkv.Cache
	runner *radixkv.Runner
	plan   *radixkv.Plan
}

func newEngine() *engine {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: pageSize, PageCount: pageCount,
	})
	must(err)
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
	must(err)
	runner, err := radixkv.NewRunner(table, shapes) // with memory of its own
	must(err)
	plan, err := radixkv.NewPlan(table)
	must(err)
	return &engine{table, cache, runner, plan}
}

func (e *engine) close() {
	e.table.Close() // in any order
	e.runner.Close()
	e.plan.Close()
	e.cache.Close()
}

// request is a prompt and what came of it: how many tokens are computed, and the model's state
// after the last of those.
type request struct {
	sequence radixkv.Sequence
	begun    radixkv.SequenceInfo
	ids      []uint32
	computed int
	last     []float32
}

// begin is a prompt that shares its start with others. What is cached of it need not be computed.
func (e *engine) begin(firstID, count int) *request {
	r := &request{}
	for i := 0; i < count; i++ {
		if i < shared {
			r.ids = append(r.ids, uint32(i))
		} else {
			r.ids = append(r.ids, uint32(firstID+i-shared))
		}
	}
	var err error
	r.sequence, r.begun, err = e.cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(r.ids)})
	must(err)
	r.computed = r.begun.CachedPositionCount
	return r
}

// step is one of a batch: up to limit new positions of each request, through all layers.
func (e *engine) step(limit int, batch ...*request) {
	var rows []radixkv.PlanRow
	var x []float32
	for _, r := range batch {
		count := len(r.ids) - r.computed
		if count > limit {
			count = limit
		}
		rows = append(rows, radixkv.PlanRow{
			Sequence: r.sequence.ID(), Start: r.computed, Count: count,
		})
		for at := r.computed; at < r.computed+count; at++ {
			x = embed(x, r.ids[at], at)
		}
	}
	must(e.plan.Set(rows))
	out := make([]float32, len(x))
	for layer := 0; layer < layers; layer++ {
		must(e.runner.AppendPrefill(e.plan, radixkv.AppendPrefillArgs{
			Layer: uint32(layer),
			Q:     radixkv.F32(project(x, width, 5, layer)),
			K:     radixkv.F32(project(x, headDim, 3, layer)),
			V:     radixkv.F32(project(x, headDim, 7, 1)),
			Out:   radixkv.F32(out),
		}))
		for i := range x {
			x[i] += out[i]
		}
	}
	end := 0
	for i, r := range batch {
		end += rows[i].Count * width
		r.last = slices.Clone(x[end-width : end])
		r.computed += rows[i].Count
		_, err := r.sequence.Publish(r.computed)
		must(err)
	}
}

// decode appends the most likely token to each request, and computes it.
func (e *engine) decode(batch ...*request) {
	for _, r := range batch {
		r.ids = append(r.ids, mostLikely(r.last))
		must(r.sequence.Append(radixkv.Text(r.ids[len(r.ids)-1:])))
	}
	e.step(1, batch...)
}

func tell(out io.Writer) {
	say := func(format string, values ...any) { fmt.Fprintf(out, format+"\n", values...) }
	sayDecoded := func(name string, r *request) {
		words := fmt.Sprint(r.ids[len(r.ids)-decoded:])
		say("   %s: %s", name, words[1:len(words)-1])
	}
	pageBytes, err := radixkv.RunnerSupports(shapes, pageSize)
	must(err)
	say("1. A runner of %d layers: %d bytes of KV for each page of %d positions", layers,
		pageBytes, pageSize)
	e := newEngine()
	defer e.close()

	// Nothing is cached: every position is computed, in chunks, and published as it goes.
	a := e.begin(50, 52)
	steps := 0
	for ; a.computed < len(a.ids); steps++ {
		e.step(32, a)
	}
	say("2. Request A: %d tokens, %d of them cached, computed in %d steps", len(a.ids),
		a.begun.CachedTokenCount, steps)

	// The shared start ends inside a page: two pages are shared, four positions copied.
	b := e.begin(70, 48)
	say("3. Request B: %d tokens, %d of them cached, %d of these by a copy", len(b.ids),
		b.begun.CachedTokenCount, b.begun.CachedPositionCount%pageSize)
	e.step(32, b)

	for i := 0; i < decoded; i++ {
		e.decode(a, b)
	}
	say("4. Both decode %d tokens, in one batch", decoded)
	sayDecoded("A", a)
	sayDecoded("B", b)

	fresh := newEngine()
	defer fresh.close()
	alone := fresh.begin(70, 48)
	fresh.step(64, alone)
	for i := 0; i < decoded; i++ {
		fresh.decode(alone)
	}
	say("5. B again, alone, in a cache that is empty")
	sayDecoded("B", alone)
	same := "others"
	if slices.Equal(alone.last, b.last) {
		same = "the same, to the bit"
	}
	say("   the numbers are %s", same)
	must(a.sequence.Release())
	must(b.sequence.Release())
}
