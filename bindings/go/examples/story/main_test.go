package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The story in Go prints the text that the stories in the other languages print.
func TestStory(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "story.txt"))
	if os.IsNotExist(err) {
		t.Skip("SKIPPED: examples/story.txt is not beside this module")
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
