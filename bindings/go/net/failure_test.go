package net

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Prints the statuses of failures for which there is no memory.
const withoutMemory = `
#include <stdio.h>
#include <stdlib.h>

#define malloc(size) NULL
#include "failure.h"

size_t rkv_net_last_error_message(char *buffer, size_t capacity) {
    (void)buffer;
    return capacity + 8;
}

int main(int count, char **texts) {
    for (int at = 1; at < count; at++) {
        rkvnetgo_failure *failure = rkvnetgo_end((enum rkv_net_status)atoi(texts[at]));
        printf("%d %s\n", (int)failure->status, failure->message);
        rkvnetgo_failure_free(failure);
    }
    return 0;
}
`

// A failure has its status also where there is no memory for its message.
func TestFailureWithoutMemory(t *testing.T) {
	header := headerText(t)
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("SKIPPED: no `cc` on the PATH")
	}
	source := filepath.Join(t.TempDir(), "main.c")
	if err := os.WriteFile(source, []byte(withoutMemory), 0o600); err != nil {
		t.Fatal(err)
	}
	program := source + ".out"
	output, err := exec.Command(compiler, "-I.", "-I../../../include", "-o", program, source).
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var statuses []string
	want := ""
	for _, found := range regexp.MustCompile(`(?m)^    RKV_NET_STATUS_\w+ = ([1-9]\d*),$`).
		FindAllStringSubmatch(header, -1) {
		statuses = append(statuses, found[1])
		want += fmt.Sprintln(found[1], "no memory for the message of a failure")
	}
	if len(statuses) != 4 || len(statuses) != strings.Count(header, "    RKV_NET_STATUS_")-1 {
		t.Fatal("statuses were not found:", statuses)
	}
	output, err = exec.Command(program, statuses...).Output()
	if err != nil || string(output) != want {
		t.Fatalf("%v\n%s", err, output)
	}
}
