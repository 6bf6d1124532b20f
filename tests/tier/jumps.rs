//! Clocks that jump: the clock of the wall by years, and with it, if it shall, the one that counts
//! on, as after a suspended machine woke up.
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// In front of the C library.
const CLOCK: &str = r"
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static atomic_long looks;
    long done = syscall(SYS_clock_gettime, clock, now);
    long look = atomic_fetch_add(&looks, 1);
    if (clock == CLOCK_REALTIME) {
        now->tv_sec += (look % 3 - 1) * 1000000000L;
    } else {
        now->tv_sec += look * STEP;
    }
    return (int)done;
}
";

/// Runs a test of this program in a process with that clock, in which `variable` is set to the
/// folder. Each look at the other clock finds so many seconds more.
pub fn run(folder: &Path, test: &str, variable: &str, seconds: u32) {
    fs::create_dir_all(folder).unwrap();
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", &format!("-DSTEP={seconds}"), "-o"])
        .args([&library, &source])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, folder)
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}{text}", String::from_utf8_lossy(&done.stdout));
}

/// In that process: the clock does jump.
pub fn check() {
    let before = SystemTime::now();
    let years = (0..6).map(|_| SystemTime::now()).any(|now| {
        now.duration_since(before).unwrap_or_else(|early| early.duration()).as_secs() > 100_000_000
    });
    assert!(years, "the clock does not jump");
}
