package main

import "testing"

// E02: who routes by events finds more than who takes turns.
func TestRoutingByEvents(t *testing.T) {
	inTurn, asked, err := talk(false)
	if err != nil {
		t.Fatal(err)
	}
	routed, same, err := talk(true)
	if err != nil {
		t.Fatal(err)
	}
	if asked != same || routed*10 < inTurn*11 {
		t.Fatalf("of %d and %d tokens %d and %d are cached", asked, same, inTurn, routed)
	}
}
