package net

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	gonet "net"
	"reflect"
	"strings"
	"testing"
	"time"
)

// subscriber is a SUB socket, as much of ZMTP 3.0 as a test needs: https://rfc.zeromq.org/spec/23.
type subscriber struct {
	conn gonet.Conn
	from *bufio.Reader
}

func subscribe(t *testing.T, port uint16, topic string) *subscriber {
	t.Helper()
	conn, err := gonet.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	s := &subscriber{conn, bufio.NewReader(conn)}
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
	s.write(t, greeting)
	if _, err := io.ReadFull(s.from, greeting); err != nil {
		t.Fatal(err)
	}
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"
	s.write(t, append([]byte{4, byte(len(ready))}, ready...))
	if _, command := s.frame(t); command != 4 {
		t.Fatalf("a frame with flags %d instead of READY", command)
	}
	s.write(t, append([]byte{0, byte(1 + len(topic)), 1}, topic...))
	return s
}

func (s *subscriber) write(t *testing.T, bytes []byte) {
	t.Helper()
	if _, err := s.conn.Write(bytes); err != nil {
		t.Fatal(err)
	}
}

// frame reads one: its bytes, and its flags without the one of long frames.
func (s *subscriber) frame(t *testing.T) ([]byte, byte) {
	t.Helper()
	read := func(count uint64) []byte {
		bytes := make([]byte, count)
		if _, err := io.ReadFull(s.from, bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	flags := read(1)[0]
	if flags&2 == 0 {
		return read(uint64(read(1)[0])), flags
	}
	return read(binary.BigEndian.Uint64(read(8))), flags &^ 2
}

func (s *subscriber) message(t *testing.T) [][]byte {
	t.Helper()
	var frames [][]byte
	for {
		bytes, flags := s.frame(t)
		frames = append(frames, bytes)
		if flags&1 == 0 {
			return frames
		}
	}
}

// E03: what a subscriber reads are topic, number and payload.
func TestPublisher(t *testing.T) {
	publisher, err := NewPublisher(PublisherConfig{
		Endpoint: "tcp://127.0.0.1:0", ReplayEndpoint: "tcp://127.0.0.1:0", Topic: "kv",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	stats, err := publisher.Stats()
	if err != nil || stats.Port == 0 || stats.ReplayPort == 0 || stats.Port == stats.ReplayPort {
		t.Fatal(stats, err)
	}
	reader := subscribe(t, stats.Port, "kv")
	// The publisher knows of the subscription when a message arrives.
	got := make(chan [][]byte)
	go func() { got <- reader.message(t) }()
	long := make([]byte, 70_000)
	var frames [][]byte
	sent := uint64(0)
	for frames == nil {
		number, err := publisher.Publish(long)
		if err != nil || number != sent {
			t.Fatal(number, sent, err)
		}
		sent++
		select {
		case frames = <-got:
		case <-time.After(10 * time.Millisecond):
		}
	}
	if len(frames) != 3 || string(frames[0]) != "kv" || !reflect.DeepEqual(frames[2], long) {
		t.Fatal(len(frames), string(frames[0]), len(frames[2]))
	}
	if number := binary.BigEndian.Uint64(frames[1]); number >= sent {
		t.Fatal(number, sent)
	}
	if number, err := publisher.Publish(nil); err != nil || number != sent {
		t.Fatal("a batch of no bytes", number, err)
	}
	stats, err = publisher.Stats()
	if err != nil || stats.PublishedBatchCount != sent+1 ||
		stats.PublishedByteCount != sent*uint64(len(long)) || stats.ReplayBatchCount != sent+1 {
		t.Fatal(stats, err)
	}
}

func TestRefused(t *testing.T) {
	_, err := NewPublisher(PublisherConfig{})
	if !errors.Is(err, InvalidArgument) || !strings.Contains(err.Error(), "config.endpoint") {
		t.Fatal(err)
	}
	first, err := NewPublisher(PublisherConfig{Endpoint: "tcp://127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	stats, _ := first.Stats()
	_, err = NewPublisher(PublisherConfig{Endpoint: fmt.Sprintf("tcp://127.0.0.1:%d", stats.Port)})
	if !errors.Is(err, Network) {
		t.Fatal(err)
	}
	for range [2]int{} {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := first.Publish(nil); err != ErrClosed {
		t.Fatal(err)
	}
	var none *Publisher
	if _, err := none.Stats(); err != ErrClosed || none.Close() != nil {
		t.Fatal(err)
	}
}
