package radixkv_test

import (
	"math"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

const (
	layers     = 2
	queryHeads = 4
	kvHeads    = 2
	headDim    = 64
	queryWidth = queryHeads * headDim
	kvWidth    = kvHeads * headDim
)

var smallRunner = radixkv.RunnerConfig{
	LayerCount: layers, QueryHeadCount: queryHeads, KVHeadCount: kvHeads, HeadDim: headDim,
	ThreadCount: 2,
}

// runnerBench is a bench with a runner of small shapes and a plan.
type runnerBench struct {
	*bench
	runner *radixkv.Runner
	plan   *radixkv.Plan
}

func newRunnerBench(t testing.TB, pageSize, pageCount uint32) *runnerBench {
	t.Helper()
	return newRunnerBenchWith(t, pageSize, pageCount, smallRunner)
}

func newRunnerBenchWith(
	t testing.TB, pageSize, pageCount uint32, config radixkv.RunnerConfig,
) *runnerBench {
	t.Helper()
	b := newBench(t, pageSize, pageCount, 0)
	runner, err := radixkv.NewRunner(b.table, config)
	must(t, err)
	plan, err := radixkv.NewPlan(b.table)
	must(t, err)
	t.Cleanup(func() {
		must(t, plan.Close())
		must(t, runner.Close())
	})
	return &runnerBench{b, runner, plan}
}

const (
	kindQ = iota
	kindK
	kindV
)

// element is a model whose projections are a function of token and position.
func element(kind, layer int, token uint32, position, at int) float32 {
	x := uint64(kind) + 3*uint64(layer) + 31*uint64(token)
	x = (x*1000003+uint64(position))*1000003 + uint64(at) + 1
	x *= 0x9E3779B97F4A7C15
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return float32(x>>40)/(1<<23) - 1
}

func project(into []float32, kind, layer int, ids []uint32, start, count int) []float32 {
	width := kvWidth
	if kind == kindQ {
		width = queryWidth
	}
	for position := start; position < start+count; position++ {
		for at := 0; at < width; at++ {
			into = append(into, element(kind, layer, ids[position], position, at))
		}
	}
	return into
}

// naive is attention of one query head over the positions [first, end), in float64.
func naive(layer int, ids []uint32, query, head, first, end int) (
	out [headDim]float64, lse float64,
) {
	kv := head / (queryHeads / kvHeads)
	total := 0.0
	for key := first; key < end; key++ {
		dot := 0.0
		for d := 0; d < headDim; d++ {
			dot += float64(element(kindQ, layer, ids[query], query, head*headDim+d)) *
				float64(element(kindK, layer, ids[key], key, kv*headDim+d))
		}
		weight := math.Exp(dot / math.Sqrt(headDim))
		total += weight
		for d := range out {
			out[d] += weight * float64(element(kindV, layer, ids[key], key, kv*headDim+d))
		}
	}
	for d := range out {
		out[d] /= total
	}
	return out, math.Log(total)
}

// chunk is new positions of one sequence, and its tokens.
type chunk struct {
	sequence     radixkv.Sequence
	ids          []uint32
	start, count int
}

// tensors are the inputs and outputs of one layer.
type tensors struct{ q, k, v, out, lse []float32 }

func newTensors(layer int, chunks ...chunk) *tensors {
	t := &tensors{}
	for _, c := range chunks {
		t.q = project(t.q, kindQ, layer, c.ids, c.start, c.count)
		t.k = project(t.k, kindK, layer, c.ids, c.start, c.count)
		t.v = project(t.v, kindV, layer, c.ids, c.start, c.count)
	}
	t.out, t.lse = make([]float32, len(t.q)), make([]float32, len(t.q)/headDim)
	return t
}

func (t *tensors) args(layer int) radixkv.AppendPrefillArgs {
	return radixkv.AppendPrefillArgs{
		Layer: uint32(layer),
		Q:     radixkv.F32(t.q), K: radixkv.F32(t.k), V: radixkv.F32(t.v),
		Out: radixkv.F32(t.out), LSE: t.lse,
	}
}

func near(got float32, want, tolerance float64) bool {
	return math.Abs(float64(got)-want) <= tolerance
}

// sameAsNaive checks all that came out of a layer, causal over everything.
func (t *tensors) sameAsNaive(b testing.TB, layer int, chunks ...chunk) {
	b.Helper()
	at := 0
	for _, c := range chunks {
		for query := c.start; query < c.start+c.count; query++ {
			for head := 0; head < queryHeads; head++ {
				want, lse := naive(layer, c.ids, query, head, 0, query+1)
				if !near(t.lse[at], lse, 2e-5) {
					b.Fatalf("layer %d, query %d: lse %v, want %v", layer, query, t.lse[at], lse)
				}
				for d, value := range t.out[at*headDim : (at+1)*headDim] {
					if !near(value, want[d], 2e-5) {
						b.Fatalf("layer %d, query %d: %v, want %v", layer, query, value, want[d])
					}
				}
				at++
			}
		}
	}
}

func planRows(chunks ...chunk) []radixkv.PlanRow {
	var rows []radixkv.PlanRow
	for _, c := range chunks {
		rows = append(rows, radixkv.PlanRow{
			Sequence: c.sequence.ID(), Start: c.start, Count: c.count,
		})
	}
	return rows
}

// step computes chunks in every layer and checks each result.
func (b *runnerBench) step(chunks ...chunk) {
	b.Helper()
	must(b, b.plan.Set(planRows(chunks...)))
	for layer := 0; layer < layers; layer++ {
		t := newTensors(layer, chunks...)
		must(b, b.runner.AppendPrefill(b.plan, t.args(layer)))
		t.sameAsNaive(b, layer, chunks...)
	}
}
