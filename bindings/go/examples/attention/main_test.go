package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the example prints in Go is what it prints in the other languages.
func TestAttention(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "attention.txt"))
	if os.IsNotExist(err) {
		t.Skip("SKIPPED: examples/attention.txt is not beside this module")
	}
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	tell(&got)
	if got.String() != string(want) {
		t.Fatalf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}
