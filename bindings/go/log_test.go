package radixkv_test

import (
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// The sink can be set, replaced and taken away, and an ordinary failure is not worth a log line.
func TestSetLog(t *testing.T) {
	defer radixkv.SetLog(radixkv.LogOff, nil)
	lines := 0
	for i := 0; i < 3; i++ {
		radixkv.SetLog(radixkv.LogError, func(radixkv.LogLevel, string) { lines++ })
	}
	_, err := radixkv.NewPageTable(radixkv.PageTableConfig{})
	wants(t, err, radixkv.InvalidArgument)
	equal(t, "lines", lines, 0)
}
