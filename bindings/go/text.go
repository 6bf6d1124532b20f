package radixkv

// #include <stdlib.h>
import "C"

import "strings"

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
