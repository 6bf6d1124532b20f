package net

import (
	"errors"
	"strings"
	"testing"
)

// T13: a store says what a cache is to call, whether or not there is a server.
func TestStore(t *testing.T) {
	for _, url := range []string{"", "http://there", "redis://"} {
		store, err := NewStore(StoreConfig{URL: url})
		if store != nil || !errors.Is(err, InvalidArgument) {
			t.Fatal(url, store, err)
		}
	}
	// Each text arrives: what is wrong of it is said with its name.
	for name, config := range map[string]StoreConfig{
		"config.url":      {URL: "s3://"},
		"config.endpoint": {URL: "s3://b", Endpoint: "localhost"},
		"config.ca_file":  {URL: "rediss://127.0.0.1:1", CAFile: "/not/there"},
	} {
		_, err := NewStore(config)
		if !errors.Is(err, InvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Fatal(name, err)
		}
	}
	config := StoreConfig{URL: "redis://127.0.0.1:1", Prefix: "test/", ConnectionCount: 1}
	store, err := NewStore(config)
	if err != nil {
		t.Fatal(err)
	}
	functions, err := store.Functions()
	if err != nil || functions.UserData == nil || functions.Has == nil || functions.Get == nil ||
		functions.Put == nil || functions.Remove == nil {
		t.Fatal(functions, err)
	}
	if failure := store.LastFailure(); failure != "" {
		t.Fatal(failure) // nothing was asked yet
	}
	for i := 0; i < 2; i++ {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Functions(); err != ErrClosed || store.LastFailure() != "" {
		t.Fatal(err)
	}
	var none *Store
	if _, err := none.Functions(); err != ErrClosed || none.Close() != nil {
		t.Fatal(err)
	}
}
