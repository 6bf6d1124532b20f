package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The chat in Go prints the text that those in the other languages print.
func TestHybrid(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "hybrid.txt"))
	if os.IsNotExist(err) {
		t.Skip("SKIPPED: examples/hybrid.txt is not beside this module")
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
