package net

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func headerText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../include/radixkv_net.h")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sourceTexts are the files of this package, without comments.
func sourceTexts(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"publisher.go", "store.go", "failure.h"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, regexp.MustCompile(`//.*`).ReplaceAllString(string(text), ""))
	}
	return all
}

// Every function of the header is called.
func TestHeaderFunctions(t *testing.T) {
	if LibraryABIVersion() < ABIVersion {
		t.Fatal(LibraryABIVersion())
	}
	source := strings.Join(sourceTexts(t), "")
	functions := regexp.MustCompile(`(?m)^[a-z].* \*?(rkv_net_\w+)\(`).
		FindAllStringSubmatch(headerText(t), -1)
	if len(functions) < 10 {
		t.Fatal("functions were not found:", functions)
	}
	for _, found := range functions {
		if !strings.Contains(source, found[1]+"(") {
			t.Error(found[1], "is not called")
		}
	}
}

// Every field of the header's structs is read or written in a file that names the struct: others
// have fields of the same names.
func TestHeaderFields(t *testing.T) {
	sources := sourceTexts(t)
	structs := regexp.MustCompile(`(?s)typedef struct (rkv_net_\w+) \{(.*?)\n\} `).
		FindAllStringSubmatch(headerText(t), -1)
	if len(structs) != 3 {
		t.Fatal("not the structs that there are:", len(structs))
	}
	zero := regexp.MustCompile(`     \* Zero\.\n     \*/\n    .*;`) // nothing to say of those
	for _, found := range structs {
		used := map[string]bool{"struct_size": true}
		for _, source := range sources {
			if !regexp.MustCompile(`\b` + found[1] + `\b`).MatchString(source) {
				continue
			}
			for _, use := range regexp.MustCompile(`\.(\w+)|\t(\w+):`).
				FindAllStringSubmatch(source, -1) {
				used[use[1]+use[2]] = true
			}
		}
		fields := regexp.MustCompile(`(?m)^    [a-z].*?(\w+);$`).
			FindAllStringSubmatch(zero.ReplaceAllString(found[2], ""), -1)
		if len(fields) < 7 {
			t.Fatal("fields were not found:", found[1], fields)
		}
		for _, field := range fields {
			if !used[field[1]] {
				t.Errorf("%s.%s is not there", found[1], field[1])
			}
		}
	}
}
