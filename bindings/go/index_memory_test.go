package radixkv_test

import (
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// Of the whole process, so that there is one test of it.
func TestIndexMemoryIsReservedOnce(t *testing.T) {
	err := radixkv.ReserveIndexMemory(0, radixkv.HugePagesTry)
	names(t, err, radixkv.InvalidArgument, "byte_count")
	if err := radixkv.ReserveIndexMemory(3<<20, radixkv.HugePagesTry); err != nil {
		t.Fatal(err)
	}
	names(t, radixkv.ReserveIndexMemory(1, radixkv.HugePagesOff), radixkv.InvalidState, "already")
	stats, err := radixkv.ReadIndexMemoryStats()
	if err != nil || stats.ReservedBytes != 4<<20 || stats.HugePageBytes > stats.ReservedBytes {
		t.Fatal(stats, err)
	}
}
