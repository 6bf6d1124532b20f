package radixkv_test

import (
	"bytes"
	"errors"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

func encode(t *testing.T, encoder *radixkv.EventEncoder, limit int) radixkv.EventBatch {
	t.Helper()
	batch, err := encoder.Encode(1.5, limit)
	must(t, err)
	return batch
}

func says(batch radixkv.EventBatch, text string) bool {
	return bytes.Contains(batch.Payload, []byte(text))
}

// E01, E03: batches come until nothing is new, an event at a time where there is little room.
func TestEvents(t *testing.T) {
	b := newBenchWith(t, 4, 33, radixkv.CacheConfig{JournalBytes: 1 << 16})
	prompt := radixkv.Tokens{IDs: run(1, 12)}
	b.request(base, prompt)
	encoder, err := radixkv.NewEventEncoder(b.cache, radixkv.EventEncoderConfig{})
	must(t, err)
	_, err = encoder.Encode(1, -1)
	names(t, err, radixkv.InvalidArgument, "sizeLimit")
	batch := encode(t, encoder, 1)
	equal(t, "cleared first", says(batch, "AllBlocksCleared"), true)
	equal(t, "there is more", batch.Flags, radixkv.EventsMore)
	batch = encode(t, encoder, 1)
	equal(t, "stored", says(batch, "BlockStored"), true)
	equal(t, "blocks", batch.StoredBlockCount, 3)
	for batch.Flags&radixkv.EventsMore != 0 {
		batch = encode(t, encoder, 0)
	}
	equal(t, "nothing new", len(encode(t, encoder, 0).Payload), 0)
	must(t, encoder.Repeat())
	equal(t, "again", encode(t, encoder, 0).StoredBlockCount, 3)
	must(t, encoder.Close())
	must(t, encoder.Close())
	_, err = encoder.Encode(1, 0)
	equal(t, "closed", errors.Is(err, radixkv.ErrClosed), true)
}

// E04: what namespaces are called.
func TestEventNames(t *testing.T) {
	b := newBenchWith(t, 4, 33, radixkv.CacheConfig{JournalBytes: 1 << 16})
	encoder, err := radixkv.NewEventEncoder(b.cache, radixkv.EventEncoderConfig{
		Flags: radixkv.EventsWideHashes | radixkv.EventsDataParallel, DataParallelRank: 3,
		PlaceholderTokenID: 9, Medium: "CPU",
	})
	must(t, err)
	defer encoder.Close()
	space, name, salt := base.WithLoRA(7), "sql", "tenant-a"
	must(t, encoder.NameNamespace(space, &name, &salt))
	b.request(space, radixkv.Tokens{IDs: run(1, 4)})
	batch := encode(t, encoder, 0)
	equal(t, "names", says(batch, "sql") && says(batch, "tenant-a") && says(batch, "CPU"), true)
	equal(t, "rank", batch.Payload[len(batch.Payload)-1], 3)
	for _, cut := range []string{"tenant-a\x00b", "\x00"} {
		names(t, encoder.NameNamespace(space, &cut, nil), radixkv.InvalidArgument, "loraName")
		names(t, encoder.NameNamespace(space, nil, &cut), radixkv.InvalidArgument, "cacheSalt")
	}
	err = encoder.NameNamespace(base, &name, nil)
	names(t, err, radixkv.InvalidArgument, "lora_name")
	_, err = radixkv.NewEventEncoder(b.cache, radixkv.EventEncoderConfig{Medium: "CPU\x00"})
	names(t, err, radixkv.InvalidArgument, "config.Medium")
	err = b.cache.AttachTiers(radixkv.TierConfig{
		PageBytes: 1, HostBytes: 64, Directory: t.TempDir() + "\x00x", DiskBytes: 1 << 20,
	})
	names(t, err, radixkv.InvalidArgument, "config.Directory")
}
