package radixkv_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// The headers of the working tree. A module that was downloaded alone does not have them.
func headerText(t *testing.T) string {
	var all strings.Builder
	for _, name := range []string{"radixkv.h", "radixkv_spatial.h"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "include", name))
		if os.IsNotExist(err) {
			t.Skipf("SKIPPED: include/%s is not beside this module", name)
		}
		must(t, err)
		all.Write(text)
	}
	return all.String()
}

// sourceTexts are the files of this package but its tests.
func sourceTexts(t *testing.T) []string {
	var all []string
	for _, pattern := range []string{"*.go", "*.h", "*.c"} {
		names, err := filepath.Glob(pattern)
		must(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			must(t, err)
			all = append(all, string(text))
		}
	}
	return all
}

var goValues = map[string]int64{
	"RKV_VERSION_MAJOR": radixkv.VersionMajor,
	"RKV_VERSION_MINOR": radixkv.VersionMinor,
	"RKV_VERSION_PATCH": radixkv.VersionPatch,
	"RKV_ABI_VERSION":   radixkv.ABIVersion,

	"RKV_FEATURE_RADIX_INDEX":      int64(radixkv.FeatureRadixIndex),
	"RKV_FEATURE_BLOCK_HASH_INDEX": int64(radixkv.FeatureBlockHashIndex),
	"RKV_FEATURE_CUDA":             int64(radixkv.FeatureCUDA),

	"RKV_EVENTS_WIDE_HASHES":   int64(radixkv.EventsWideHashes),
	"RKV_EVENTS_DATA_PARALLEL": int64(radixkv.EventsDataParallel),
	"RKV_EVENTS_MORE":          int64(radixkv.EventsMore),
	"RKV_EVENTS_NAME_LIMIT":    radixkv.EventsNameLimit,

	"RKV_TIERS_AGREE":     int64(radixkv.TiersAgree),
	"RKV_TIERS_THREADS":   int64(radixkv.TiersThreads),
	"RKV_FETCH_LOOK_ONLY": int64(radixkv.FetchLookOnly),
	"RKV_FETCH_END_LATE":  int64(radixkv.FetchEndLate),
	"RKV_COPY_LOAD":       int64(radixkv.CopyLoad),
	"RKV_COPY_STORE":      int64(radixkv.CopyStore),
	"RKV_REMOTE_FAILED":   int64(radixkv.RemoteFailed),
	"RKV_REMOTE_DONE":     int64(radixkv.RemoteDone),
	"RKV_REMOTE_MISSING":  int64(radixkv.RemoteMissing),

	"RKV_HUGE_PAGES_OFF":     int64(radixkv.HugePagesOff),
	"RKV_HUGE_PAGES_TRY":     int64(radixkv.HugePagesTry),
	"RKV_HUGE_PAGES_REQUIRE": int64(radixkv.HugePagesRequire),

	"RKV_LOG_OFF":   int64(radixkv.LogOff),
	"RKV_LOG_ERROR": int64(radixkv.LogError),

	"RKV_TOKEN_COORD":   int64(radixkv.TokenCoord),
	"RKV_TOKEN_SIZE":    int64(radixkv.TokenSize),
	"RKV_TOKEN_IMAGE":   int64(radixkv.TokenImage),
	"RKV_BIN_COUNT":     radixkv.BinCount,
	"RKV_TEXT_ID_LIMIT": radixkv.TextIDLimit,

	"RKV_NAMESPACE_LORA":   int64(radixkv.NamespaceLoRA),
	"RKV_NAMESPACE_IMAGE":  int64(radixkv.NamespaceImage),
	"RKV_CLEAR_LORA":       int64(radixkv.ClearLoRA),
	"RKV_CLEAR_IMAGE":      int64(radixkv.ClearImage),
	"RKV_CLEAR_SALT":       int64(radixkv.ClearSalt),
	"RKV_CLEAR_EPOCH":      int64(radixkv.ClearEpoch),
	"RKV_CLEAR_NAMESPACE":  int64(radixkv.ClearNamespace),
	"RKV_CLEAR_EVERYTHING": int64(radixkv.ClearEverything),

	"RKV_NO_SLOT":       int64(radixkv.NoSlot),
	"RKV_PAGE_SIZE_MAX": radixkv.PageSizeMax,

	"RKV_PAGE_TABLE_EXTERNAL_POOL": int64(radixkv.PageTableExternalPool),

	"RKV_GROUP_LIMIT":  radixkv.GroupLimit,
	"RKV_GROUP_FULL":   int64(radixkv.GroupFull),
	"RKV_GROUP_WINDOW": int64(radixkv.GroupWindow),
	"RKV_GROUP_CHUNK":  int64(radixkv.GroupChunk),
	"RKV_GROUP_STATE":  int64(radixkv.GroupState),

	"RKV_CACHE_WHOLE_PAGES":         int64(radixkv.CacheWholePages),
	"RKV_INSERT_LOCK":               int64(radixkv.InsertLock),
	"RKV_MATCH_LOCK":                int64(radixkv.MatchLock),
	"RKV_SNAPSHOT_INSERT_STORABLE":  int64(radixkv.SnapshotInsertStorable),
	"RKV_SNAPSHOT_INSERT_TRIMMABLE": int64(radixkv.SnapshotInsertTrimmable),
	"RKV_SNAPSHOT_MATCH_TRIMMABLE":  int64(radixkv.SnapshotMatchTrimmable),
	"RKV_CONTINUE_RUNNING":          int64(radixkv.ContinueRunning),
	"RKV_DUMP_JSON":                 int64(radixkv.DumpJSON),
	"RKV_DUMP_DOT":                  int64(radixkv.DumpDOT),
	"RKV_INDEX_RADIX":               int64(radixkv.IndexRadix),
	"RKV_INDEX_BLOCK_HASH":          int64(radixkv.IndexBlockHash),

	"RKV_JOURNAL_STORED":     int64(radixkv.JournalStored),
	"RKV_JOURNAL_REMOVED":    int64(radixkv.JournalRemoved),
	"RKV_JOURNAL_MOVED":      int64(radixkv.JournalMoved),
	"RKV_JOURNAL_CLEARED":    int64(radixkv.JournalCleared),
	"RKV_REASON_CAPACITY":    int64(radixkv.ReasonCapacity),
	"RKV_REASON_CALLER":      int64(radixkv.ReasonCaller),
	"RKV_REASON_INVALIDATED": int64(radixkv.ReasonInvalidated),
	"RKV_REASON_REPLACED":    int64(radixkv.ReasonReplaced),
	"RKV_REASON_DESTROYED":   int64(radixkv.ReasonDestroyed),
	"RKV_REASON_LIMIT":       int64(radixkv.ReasonLimit),

	"RKV_DTYPE_F32":                int64(radixkv.DTypeF32),
	"RKV_DTYPE_F16":                int64(radixkv.DTypeF16),
	"RKV_DTYPE_BF16":               int64(radixkv.DTypeBF16),
	"RKV_DTYPE_FP8_E4M3":           int64(radixkv.DTypeFP8E4M3),
	"RKV_KV_LAYOUT_NHD":            int64(radixkv.KVLayoutNHD),
	"RKV_KV_LAYOUT_HND":            int64(radixkv.KVLayoutHND),
	"RKV_BACKEND_CPU":              int64(radixkv.BackendCPU),
	"RKV_BACKEND_CUDA":             int64(radixkv.BackendCUDA),
	"RKV_RUNNER_BATCH_INVARIANT":   int64(radixkv.RunnerBatchInvariant),
	"RKV_RUNNER_LATENT":            int64(radixkv.RunnerLatent),
	"RKV_MASK_CAUSAL":              int64(radixkv.MaskCausal),
	"RKV_MASK_BIDIRECTIONAL":       int64(radixkv.MaskBidirectional),
	"RKV_MASK_CONTEXT":             int64(radixkv.MaskContext),
	"RKV_PLAN_REGIONS":             int64(radixkv.PlanRegions),
	"RKV_PLAN_SEPARATE":            int64(radixkv.PlanSeparate),
	"RKV_PLAN_TREES":               int64(radixkv.PlanTrees),
	"RKV_PLAN_COMPACT":             int64(radixkv.PlanCompact),
	"RKV_PREPARE_KEEP_COPIES_OPEN": int64(radixkv.PrepareKeepCopiesOpen),

	"RKV_STATUS_OK":               int64(radixkv.OK),
	"RKV_STATUS_INVALID_ARGUMENT": int64(radixkv.InvalidArgument),
	"RKV_STATUS_STALE_NODE":       int64(radixkv.StaleNode),
	"RKV_STATUS_STALE_SEQUENCE":   int64(radixkv.StaleSequence),
	"RKV_STATUS_STALE_LOCK":       int64(radixkv.StaleLock),
	"RKV_STATUS_BUFFER_TOO_SMALL": int64(radixkv.BufferTooSmall),
	"RKV_STATUS_INVALID_STATE":    int64(radixkv.InvalidState),
	"RKV_STATUS_UNSUPPORTED":      int64(radixkv.Unsupported),
	"RKV_STATUS_STALE_PIN":        int64(radixkv.StalePin),
	"RKV_STATUS_STALE_TICKET":     int64(radixkv.StaleTicket),
	"RKV_STATUS_OUT_OF_PAGES":     int64(radixkv.OutOfPages),
	"RKV_STATUS_OUT_OF_SLOTS":     int64(radixkv.OutOfSlots),
	"RKV_STATUS_OUT_OF_MEMORY":    int64(radixkv.OutOfMemory),
	"RKV_STATUS_BUSY":             int64(radixkv.Busy),
	"RKV_STATUS_PENDING":          int64(radixkv.Pending),
	"RKV_STATUS_DEVICE":           int64(radixkv.Device),
	"RKV_STATUS_STORAGE":          int64(radixkv.Storage),
	"RKV_STATUS_INTERNAL":         int64(radixkv.Internal),
	"RKV_STATUS_POISONED":         int64(radixkv.Poisoned),
	"RKV_STATUS_CORRUPT":          int64(radixkv.Corrupt),
}

// Every constant of the header has a Go counterpart with the same value, and the other way round.
func TestHeaderConstants(t *testing.T) {
	header := headerText(t)
	written := map[string]int64{}
	for _, pattern := range []string{
		`(?m)^#define (RKV_\w+) (\d+)$`,
		`(?m)^    (RKV_STATUS_\w+) = (\d+),$`,
	} {
		for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(header, -1) {
			value, err := strconv.ParseInt(found[2], 10, 64)
			must(t, err)
			written[found[1]] = value
		}
	}
	for name, value := range written {
		got, known := goValues[name]
		if !known {
			t.Errorf("%s has no Go counterpart", name)
		} else if got != value {
			t.Errorf("%s is %d in the header and %d in Go", name, value, got)
		}
	}
	for name := range goValues {
		if _, known := written[name]; !known {
			t.Errorf("%s is not in the header", name)
		}
	}
	// A value that the pattern above does not read would pass unseen.
	defines := regexp.MustCompile(`(?m)^#define RKV_\w+ `).FindAllString(header, -1)
	statuses := regexp.MustCompile(`(?m)^    RKV_STATUS_\w+ =`).FindAllString(header, -1)
	equal(t, "constants read", len(written), len(defines)+len(statuses))
}

// namesIn are what the first groups of some patterns match in a text.
func namesIn(text string, patterns ...string) map[string]bool {
	names := map[string]bool{}
	for _, pattern := range patterns {
		for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names[found[1]] = true
		}
	}
	return names
}

// Every function of the header is called.
func TestHeaderFunctions(t *testing.T) {
	comment := regexp.MustCompile(`//.*`)
	source := comment.ReplaceAllString(strings.Join(sourceTexts(t), ""), "")
	functions := regexp.MustCompile(`(?m)^(?:RKV_API .*?|enum rkv_status |void )(rkv_\w+)\(`).
		FindAllStringSubmatch(headerText(t), -1)
	if len(functions) < 40 {
		t.Fatalf("only %d functions found: the pattern no longer fits", len(functions))
	}
	called := namesIn(source, `\b(rkv_\w+)\(`)
	for _, found := range functions {
		if !called[found[1]] {
			t.Errorf("%s is not called", found[1])
		}
	}
}

// Every field of the header's structs is read, written or mirrored, in a file that names the struct
// or a helper's struct that has it: others have fields of the same names.
func TestHeaderFields(t *testing.T) {
	sources := sourceTexts(t)
	structs := regexp.MustCompile(`(?s)typedef struct (rkv_\w+) \{(.*?)\n\} `).
		FindAllStringSubmatch(headerText(t), -1)
	if len(structs) < 15 {
		t.Fatalf("only %d structs found: the pattern no longer fits", len(structs))
	}
	helpers := regexp.MustCompile(`typedef struct (rkvgo_\w+) \{([^}]*)\}`).
		FindAllStringSubmatch(strings.Join(sources, ""), -1)
	zero := regexp.MustCompile(`     \* Zero\.\n     \*/\n    .*;\n`) // nothing to say of those
	for _, found := range structs {
		named := `\b(?:` + found[1]
		for _, helper := range helpers {
			if strings.Contains(helper[2], found[1]+" ") {
				named += "|" + helper[1]
			}
		}
		source, names := "", regexp.MustCompile(named+`)\b`)
		for _, text := range sources {
			if names.MatchString(text) {
				source += text
			}
		}
		used := namesIn(source, `(?:\.|->)(\w+)`, `\t(\w+):`)
		mirrors := namesIn(strings.ToLower(source), `(?m)^\t(\w+) `)
		fields := regexp.MustCompile(`(?m)^    [a-z].*?(\w+)(?:\[\d+\])?;$`).
			FindAllStringSubmatch(zero.ReplaceAllString(found[2], ""), -1)
		for _, field := range fields {
			name := field[1]
			if name == "struct_size" || name == "reserved" {
				continue
			}
			if !used[name] && !mirrors[strings.ReplaceAll(name, "_", "")] {
				t.Errorf("%s.%s has no Go counterpart", found[1], name)
			}
		}
	}
}

// The names of the statuses come from the library, also for one that it does not know.
func TestStatusNames(t *testing.T) {
	for name, value := range goValues {
		if strings.HasPrefix(name, "RKV_STATUS_") {
			equal(t, "name", radixkv.Status(value).Error(), name)
		}
	}
	equal(t, "name", radixkv.Status(4711).Error(), "RKV_STATUS_UNKNOWN")
}

func TestVersion(t *testing.T) {
	equal(t, "ABI", radixkv.LibraryABIVersion(), radixkv.ABIVersion)
	equal(t, "version", radixkv.LibraryVersion(), strings.Join([]string{
		strconv.Itoa(radixkv.VersionMajor), strconv.Itoa(radixkv.VersionMinor),
		strconv.Itoa(radixkv.VersionPatch),
	}, "."))
	both := radixkv.FeatureRadixIndex | radixkv.FeatureBlockHashIndex
	equal(t, "indexes", radixkv.LibraryFeatures()&both, both)
}
