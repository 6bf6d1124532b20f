//go:build radixkv_fault_injection

package radixkv_test

import (
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// M03: of a poisoned cache, too, only the copies that are named have ended: others go on in
// its memory.
func TestCloseBesideCopiesOfAPoisonedCache(t *testing.T) {
	table := smallTable(t)
	cache, first := copying(t, table)
	sequence, _, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(50, 4))})
	must(t, err)
	_, err = sequence.Publish(4)
	must(t, err)
	must(t, sequence.Release())
	second := polled(t, cache)
	radixkv.SetLog(radixkv.LogError, func(radixkv.LogLevel, string) {})
	defer radixkv.SetLog(radixkv.LogOff, nil)
	wants(t, cache.FaultPanic(), radixkv.Internal)

	wants(t, cache.Complete([]uint64{first.Job}, true), radixkv.Poisoned)
	// That they failed, when that they are done is refused; and some that never were.
	wants(t, cache.Complete([]uint64{first.Job, first.Job, 1 << 60}, false), radixkv.Poisoned)
	names(t, cache.Close(), radixkv.InvalidState, "1 copies")
	write(second)
	wants(t, cache.Complete([]uint64{second.Job}, true), radixkv.Poisoned)
	must(t, cache.Close())
	must(t, table.Close())
}
