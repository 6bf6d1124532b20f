package radixkv_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// Prints the statuses of failures for which there is no memory.
const withoutMemory = `
#include <stdio.h>
#include <stdlib.h>

#define calloc(count, size) NULL
#include "call.c"

size_t rkv_last_error_message(char *buffer, size_t capacity) {
    (void)buffer;
    return capacity + 8;
}

rkv_status rkv_last_shortage(rkv_shortage *shortage) {
    (void)shortage;
    return RKV_STATUS_OK;
}

int main(int count, char **texts) {
    for (int at = 1; at < count; at++) {
        rkvgo_failure *failure = rkvgo_failure_copy((rkv_status)atoi(texts[at]));
        printf("%d %s\n", (int)failure->status, failure->message);
        rkvgo_failure_free(failure);
    }
    return 0;
}
`

// A failure has its status also where there is no memory for its message.
func TestFailureWithoutMemory(t *testing.T) {
	headerText(t) // or it is skipped
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("SKIPPED: no `cc` on the PATH")
	}
	source := filepath.Join(t.TempDir(), "main.c")
	must(t, os.WriteFile(source, []byte(withoutMemory), 0o600))
	program := source + ".out"
	output, err := exec.Command(compiler, "-I.", "-I../../include", "-o", program, source).
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var statuses, want []string
	for name, value := range goValues {
		if strings.HasPrefix(name, "RKV_STATUS_") && value != 0 {
			status := strconv.FormatInt(value, 10)
			statuses = append(statuses, status)
			want = append(want, status+" no memory for the message of a failure")
		}
	}
	output, err = exec.Command(program, statuses...).Output()
	must(t, err)
	equalSlices(t, "failures", strings.Split(strings.TrimSpace(string(output)), "\n"), want)
}

// A zero or nil handle was closed by nobody, and is not said to have been.
func TestHandlesThatWereNeverOpened(t *testing.T) {
	var sequence radixkv.Sequence
	_, err := radixkv.NewCache(nil, radixkv.CacheConfig{})
	for _, err := range []error{err, sequence.Release()} {
		equal(t, "status", err, radixkv.ErrClosed)
		if !strings.Contains(err.Error(), "never opened") {
			t.Error(err)
		}
	}
}
