package main

import (
	"encoding/binary"
	"fmt"
	"math"
)

// unpack reads one value of MessagePack, as far as batches of events have them: maps with texts as
// keys, arrays, texts, bytes, numbers, nil. Returns what is left.
func unpack(in []byte) (any, []byte, error) {
	if len(in) == 0 {
		return nil, nil, fmt.Errorf("the payload ends early")
	}
	head, in := in[0], in[1:]
	switch {
	case head < 0x80:
		return uint64(head), in, nil
	case head < 0x90:
		return unpackMap(int(head&15), in)
	case head < 0xa0:
		return unpackArray(int(head&15), in)
	case head < 0xc0:
		return unpackText(int(head&31), in)
	case head >= 0xe0:
		return int64(int8(head)), in, nil
	}
	// The bytes of the number that follows: a length, or a value.
	width := map[byte]int{
		0xc0: 0, 0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8,
		0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4,
	}
	bytes, known := width[head]
	if !known || len(in) < bytes {
		return nil, nil, fmt.Errorf("nothing begins with %#x", head)
	}
	var wide [8]byte
	copy(wide[8-bytes:], in)
	number, in := binary.BigEndian.Uint64(wide[:]), in[bytes:]
	switch head {
	case 0xc0:
		return nil, in, nil
	case 0xcb:
		return math.Float64frombits(number), in, nil
	case 0xd0, 0xd1, 0xd2, 0xd3:
		shift := 64 - 8*bytes
		return int64(number<<shift) >> shift, in, nil
	case 0xc4, 0xc5, 0xc6, 0xd9, 0xda, 0xdb:
		return unpackText(int(number), in)
	case 0xdc, 0xdd:
		return unpackArray(int(number), in)
	case 0xde, 0xdf:
		return unpackMap(int(number), in)
	}
	return number, in, nil
}

func unpackText(length int, in []byte) (any, []byte, error) {
	if length > len(in) {
		return nil, nil, fmt.Errorf("a text of %d bytes ends early", length)
	}
	return string(in[:length]), in[length:], nil
}

func unpackArray(length int, in []byte) (any, []byte, error) {
	values := []any{}
	for ; length > 0; length-- {
		value, left, err := unpack(in)
		if err != nil {
			return nil, nil, err
		}
		values, in = append(values, value), left
	}
	return values, in, nil
}

func unpackMap(length int, in []byte) (any, []byte, error) {
	values := map[string]any{}
	for ; length > 0; length-- {
		key, left, err := unpack(in)
		if err != nil {
			return nil, nil, err
		}
		name, isText := key.(string)
		if !isText {
			return nil, nil, fmt.Errorf("a key is %v", key)
		}
		if values[name], in, err = unpack(left); err != nil {
			return nil, nil, err
		}
	}
	return values, in, nil
}
