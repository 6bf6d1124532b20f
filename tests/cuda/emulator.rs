//! The driver that the tests run on: an emulated one, built here from the kernels' own source, or
//! with RKV_CUDA_DRIVER=system the machine's.
use super::emulated_driver;
use radixkv::gpu::{CudaConfig, Images};
use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// How the emulated device goes about its work.
#[derive(Debug, Clone, Copy)]
pub struct Conduct {
    /// One warp runs as far as it can while all others starve.
    pub greedy: bool,
    /// When asynchronous copies land: 0 early, 1 as late as is legal, 2 as a die says.
    pub landing: c_int,
    pub seed: c_uint,
    /// A fault of `kernels/device.cuh`; 0: none.
    pub fault: c_int,
    /// What is put on a stream happens as late as is legal.
    pub late: bool,
}

impl Default for Conduct {
    fn default() -> Self {
        Self { greedy: true, landing: 1, seed: 1, fault: 0, late: true }
    }
}

/// The driver. One test at a time has it.
pub struct Driver {
    emulated: Option<&'static libloading::Library>,
    _turn: MutexGuard<'static, ()>,
}

/// Whether the tests run on a GPU.
pub fn is_real() -> bool {
    env::var("RKV_CUDA_DRIVER").is_ok_and(|driver| driver == "system")
}

/// Whether faults can be put into the kernels: nvcc knows of none.
pub fn has_faults() -> bool {
    !is_real() && !emulated_driver::from_ptx()
}

impl Driver {
    /// Waits for its turn.
    pub fn get() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        static EMULATED: OnceLock<libloading::Library> = OnceLock::new();
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let emulated = (!is_real()).then(|| {
            EMULATED.get_or_init(|| {
                // Its SONAME is what the library will ask for, so that it is taken instead of
                // another libcuda.so.
                // SAFETY: its initialisers list the kernels.
                unsafe { libloading::Library::new(emulated_driver::build()) }
                    .expect("the emulated driver loads")
            })
        });
        let driver = Self { emulated, _turn: turn };
        driver.conduct(Conduct::default());
        driver.capability(8);
        driver.shared_memory(0);
        driver.occupancy(0);
        driver.pageable(false);
        driver
    }

    /// The device to compute on.
    pub fn config(&self) -> CudaConfig {
        // The emulated driver knows its kernels and looks at no image.
        let images = match self.emulated {
            // SAFETY: the emulated driver looks at no image.
            Some(_) => unsafe { Images::of(&[b"emulated"]) },
            None => Images::available().expect("RADIXKV_KERNELS names a folder of kernels"),
        };
        CudaConfig { device: 0, images, sm90: Some(false), staging_bytes: None }
    }

    /// Sets the first number of the device's compute capability; a real one has its own.
    pub fn capability(&self, major: c_int) {
        type Set = unsafe extern "C" fn(c_int);
        if let Some(set) = self.call::<Set>("rkv_emulator_capability") {
            // SAFETY: a plain number.
            unsafe { set(major) };
        }
    }

    /// Sets how much shared memory a block has at most; 0: as the capability says. A real device
    /// has its own.
    pub fn shared_memory(&self, bytes: c_int) {
        type Set = unsafe extern "C" fn(c_int);
        if let Some(set) = self.call::<Set>("rkv_emulator_shared_memory") {
            // SAFETY: a plain number.
            unsafe { set(bytes) };
        }
    }

    /// Sets how many blocks a multiprocessor is said to hold; 0: as many as seems right. A real
    /// device has its own number.
    pub fn occupancy(&self, blocks: c_int) {
        type Set = unsafe extern "C" fn(c_int);
        if let Some(set) = self.call::<Set>("rkv_emulator_occupancy") {
            // SAFETY: a plain number.
            unsafe { set(blocks) };
        }
    }

    /// Sets whether asynchronous copies may be with memory of the host that is not pinned: that
    /// waits, so a step has none. A real device always takes them.
    pub fn pageable(&self, may: bool) {
        type Set = unsafe extern "C" fn(c_int);
        if let Some(set) = self.call::<Set>("rkv_emulator_pageable") {
            // SAFETY: a plain number.
            unsafe { set(may.into()) };
        }
    }

    /// How many blocks of a kernel were launched; 0 on a real device.
    pub fn launched(&self, name: &str) -> usize {
        type Launched = unsafe extern "C" fn(*const c_char) -> usize;
        let name = CString::new(name).unwrap();
        let launched = self.call::<Launched>("rkv_emulator_launched");
        // SAFETY: a NUL-terminated string.
        launched.map_or(0, |launched| unsafe { launched(name.as_ptr()) })
    }

    fn call<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: the types below are those in kernels/emulation/driver.cpp.
        self.emulated.map(|library| unsafe { *library.get::<T>(name.as_bytes()).unwrap() })
    }

    /// Sets how the device behaves from now on. A real one does as it likes.
    pub fn conduct(&self, conduct: Conduct) {
        type Set = unsafe extern "C" fn(c_int, c_int, c_uint, c_int, c_int);
        let Conduct { greedy, landing, seed, fault, late } = conduct;
        if let Some(set) = self.call::<Set>("rkv_emulator_set") {
            // SAFETY: plain numbers.
            unsafe { set(greedy.into(), landing, seed, fault, late.into()) };
        }
    }

    /// Makes the next call of a function of the driver fail, after so many that succeed.
    pub fn fail(&self, name: &str, after: c_int, code: c_int) {
        self.fail_times(name, after, 1, code);
    }

    /// The same of so many calls.
    pub fn fail_times(&self, name: &str, after: c_int, times: c_int, code: c_int) {
        type Fail = unsafe extern "C" fn(*const c_char, c_int, c_int, c_int);
        let name = CString::new(name).unwrap();
        if let Some(fail) = self.call::<Fail>("rkv_emulator_fail_times") {
            // SAFETY: a NUL-terminated string, which is copied.
            unsafe { fail(name.as_ptr(), after, times, code) };
        }
    }

    /// How often a function of the driver was called; 0 on a real one.
    pub fn calls(&self, name: &str) -> i32 {
        type Calls = unsafe extern "C" fn(*const c_char) -> c_int;
        let name = CString::new(name).unwrap();
        // SAFETY: a NUL-terminated string.
        self.call::<Calls>("rkv_emulator_calls").map_or(0, |calls| unsafe { calls(name.as_ptr()) })
    }

    /// Pieces of memory, of the device and pinned, that nobody gave back; 0 on a real device.
    pub fn memory(&self) -> usize {
        type Memory = unsafe extern "C" fn() -> usize;
        // SAFETY: takes nothing.
        self.call::<Memory>("rkv_emulator_memory").map_or(0, |memory| unsafe { memory() })
    }

    /// What the device did wrong since it was asked last.
    pub fn fault(&self) -> String {
        type Fault = unsafe extern "C" fn(*mut u8, usize) -> usize;
        let mut text = vec![0; 512];
        // SAFETY: a buffer and its size.
        let length = self
            .call::<Fault>("rkv_emulator_fault")
            .map_or(0, |fault| unsafe { fault(text.as_mut_ptr(), text.len()) });
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    /// Names, threads and shared memory of the kernels.
    pub fn kernels(&self) -> Vec<(String, usize, usize)> {
        type Kernel =
            unsafe extern "C" fn(usize, *mut *const c_char, *mut c_uint, *mut c_uint) -> usize;
        let Some(kernel) = self.call::<Kernel>("rkv_emulator_kernel") else { return Vec::new() };
        let (mut found, mut count) = (Vec::new(), 1);
        while found.len() < count {
            let (mut name, mut threads, mut shared) = (std::ptr::null(), 0, 0);
            // SAFETY: three places to write to; the name is static.
            unsafe {
                count = kernel(found.len(), &mut name, &mut threads, &mut shared);
                let name = CStr::from_ptr(name).to_str().unwrap().to_owned();
                found.push((name, threads as usize, shared as usize));
            }
        }
        found
    }

    /// Size of a struct in the kernels' source.
    pub fn size_of(&self, name: &str) -> Option<usize> {
        type Size = unsafe extern "C" fn(*const c_char) -> usize;
        let name = CString::new(name).unwrap();
        // SAFETY: a NUL-terminated string.
        self.call::<Size>("rkv_emulator_sizeof").map(|size| unsafe { size(name.as_ptr()) })
    }
}
