package radixkv

/*
#include "call.h"

// From a declaration rkv_parallel_task is called through, so that Go can.
static inline void rkvgo_run_task(rkv_parallel_task run, void *task, size_t index) {
	run(task, index);
}
*/
import "C"

import (
	"fmt"
	"runtime/cgo"
	"unsafe"
)

// ParallelFor calls run once for each index below taskCount, in any order, from any goroutines, and
// returns when all calls have returned. Until the runner is closed the program holds the function
// and what it leads to: the garbage collector does not close a runner to which it leads.
type ParallelFor func(taskCount int, run func(index int))

// threads is the engine's ParallelFor, which lives as long as the runner does.
type threads struct {
	handle cgo.Handle
}

func newThreads(parallelFor ParallelFor) *threads {
	if parallelFor == nil {
		return nil
	}
	return &threads{handle: cgo.NewHandle(parallelFor)}
}

func (t *threads) end() {
	if t != nil {
		t.handle.Delete()
	}
}

// number is zero for threads of the library's own.
func (t *threads) number() C.uintptr_t {
	if t == nil {
		return 0
	}
	return C.uintptr_t(t.handle)
}

// endOnPanic is deferred by what the library calls: a panic may not run through it, nor the end of
// the goroutine. The program ends as by a panic that nobody recovers, with a message that says
// where it came from.
func endOnPanic(where string, hasReturned *bool) {
	reason := recover()
	if *hasReturned {
		return
	}
	if reason == nil {
		reason = "runtime.Goexit"
	}
	go panic(fmt.Sprintf("radixkv: panic in %s: %v", where, reason))
	select {}
}

//export rkvgoParallelFor
func rkvgoParallelFor(
	handle C.uintptr_t, taskCount C.size_t, run C.rkv_parallel_task, task unsafe.Pointer,
) {
	hasReturned := false
	defer endOnPanic("a ParallelFor", &hasReturned)
	parallelFor := cgo.Handle(handle).Value().(ParallelFor)
	parallelFor(int(taskCount), func(index int) {
		if index < 0 || index >= int(taskCount) {
			panic(fmt.Sprintf("index %d of %d tasks", index, taskCount))
		}
		C.rkvgo_run_task(run, task, C.size_t(index))
	})
	hasReturned = true
}
