package radixkv

/*
#include "call.h"

extern void rkvgoLog(uint32_t level, char *message, uintptr_t handle);

// The handle travels as an integer on both ways: as a pointer Go's garbage collector would look at
// it and stop the program.
static void rkvgo_log(uint32_t level, const char *message, void *user_data) {
	rkvgoLog(level, (char *)message, (uintptr_t)user_data);
}

static inline void rkvgo_set_log_callback(uint32_t max_level, uintptr_t handle) {
	rkv_set_log_callback(max_level, handle == 0 ? NULL : rkvgo_log, (void *)handle);
}
*/
import "C"

import (
	"runtime/cgo"
	"sync"
)

// LogLevel is the weight of a message.
type LogLevel uint32

const (
	// LogOff sends nothing.
	LogOff LogLevel = C.RKV_LOG_OFF
	// LogError: something is broken, e.g. a caught panic with its place in the source.
	LogError LogLevel = C.RKV_LOG_ERROR
)

var logSink struct {
	sync.Mutex
	handle cgo.Handle
}

// SetLog sets where the library logs to, for the whole process; nil is silent: the default.
//
// Messages above maxLevel are not sent. The sink is called from any thread and must not call back
// into this package. A panic in it ends the program, for it may not run through the library. When
// SetLog returns, the earlier sink is no longer running and will not be called again.
func SetLog(maxLevel LogLevel, sink func(level LogLevel, message string)) {
	logSink.Lock()
	defer logSink.Unlock()
	earlier := logSink.handle
	logSink.handle = 0
	if sink != nil {
		logSink.handle = cgo.NewHandle(sink)
	}
	C.rkvgo_set_log_callback(C.uint32_t(maxLevel), C.uintptr_t(logSink.handle))
	if earlier != 0 {
		earlier.Delete()
	}
}

//export rkvgoLog
func rkvgoLog(level C.uint32_t, message *C.char, handle C.uintptr_t) {
	hasReturned := false
	defer endOnPanic("a log sink", &hasReturned)
	sink := cgo.Handle(handle).Value().(func(LogLevel, string))
	sink(LogLevel(level), C.GoString(message))
	hasReturned = true
}
