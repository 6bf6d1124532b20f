package main

import (
	"os"
	"path/filepath"
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
	told, err := os.Create(filepath.Join(t.TempDir(), "told"))
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	out := os.Stdout
	os.Stdout = told
	main()
	os.Stdout = out
	got, err := os.ReadFile(told.Name())
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Fatalf("got:\n%s\nwant:\n%s", got, want)
	}
}
