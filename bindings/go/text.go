package radixkv

// #include <stdint.h>
// #include <stdlib.h>
import "C"

import (
	"math"
	"strings"
)

// whole refuses a text with a zero byte: C would take what is before it.
func whole(name, text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return invalid(name + " has a zero byte")
	}
	return nil
}

// text is a copy for C, which the caller frees; nil for "".
func text(name, from string) (*C.char, error) {
	if from == "" {
		return nil, nil
	}
	if err := whole(name, from); err != nil {
		return nil, err
	}
	return C.CString(from), nil
}

// number32 is a number for C; what has no room there becomes one that names nothing.
func number32(number int) C.uint32_t {
	if number < 0 || uint64(number) > math.MaxUint32 {
		return math.MaxUint32
	}
	return C.uint32_t(number)
}
