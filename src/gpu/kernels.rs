//! The kernels on a device, and their launch.
use super::arguments::Plain;
use super::driver::{Context, check};
use super::images::Images;
use super::stream::Stream;
use crate::error::Error;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

/// A kernel, ready to be launched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    function: sys::CUfunction,
    /// It waits by itself for what was launched before it, see `begin_launch` in
    /// `kernels/device.cuh`.
    waits: bool,
}

/// The first architecture, as PTX names them, whose code waits.
const WAITS_FROM: i32 = 90;

/// The loaded images.
#[derive(Debug)]
pub(super) struct Kernels {
    context: Arc<Context>,
    libraries: Vec<sys::CUlibrary>,
    found: HashMap<String, Kernel>,
}
// SAFETY: handles that any thread may use.
unsafe impl Send for Kernels {}
// SAFETY: as above; nothing changes after `load`.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Loads the images, with or without those for Hopper, and finds the kernels of these names,
    /// with as many bytes of shared memory as each needs.
    pub(super) fn load(
        context: &Arc<Context>,
        images: Images,
        with_hopper: bool,
        wanted: &[(String, usize)],
    ) -> Result<Self, Error> {
        let _entered = context.enter()?;
        let mut made =
            Self { context: context.clone(), libraries: Vec::new(), found: HashMap::new() };
        let hopper = images.hopper.iter().filter(|_| with_hopper);
        for image in images.common.iter().chain(hopper) {
            let mut library = ptr::null_mut();
            let none = ptr::null_mut();
            // SAFETY: an image that nvcc made, with its own length in it; no options.
            let result = unsafe {
                sys::cuLibraryLoadData(
                    &mut library,
                    image.as_ptr().cast(),
                    none,
                    none.cast(),
                    0,
                    none.cast(),
                    none.cast(),
                    0,
                )
            };
            check(result, "cuLibraryLoadData").map_err(of_image)?;
            made.libraries.push(library);
        }
        for (name, shared_bytes) in wanted {
            // A library that the driver loads lazily is looked at when a function is needed.
            let kernel = made.find(name, *shared_bytes).map_err(of_image)?;
            made.found.insert(name.clone(), kernel);
        }
        Ok(made)
    }

    fn find(&self, name: &str, shared_bytes: usize) -> Result<Kernel, Error> {
        let symbol = CString::new(name).expect("names of kernels have no NUL");
        for &library in &self.libraries {
            let (mut kernel, mut function) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: a loaded library, a NUL-terminated name.
            let result = unsafe { sys::cuLibraryGetKernel(&mut kernel, library, symbol.as_ptr()) };
            if result == sys::CUresult::CUDA_ERROR_NOT_FOUND {
                continue;
            }
            check(result, "cuLibraryGetKernel")?;
            // SAFETY: a kernel of a loaded library; the attribute takes a number.
            unsafe {
                check(sys::cuKernelGetFunction(&mut function, kernel), "cuKernelGetFunction")?;
                let which =
                    sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let set = sys::cuFuncSetAttribute(function, which, shared_bytes as i32);
                check(set, "cuFuncSetAttribute")?;
            }
            // Of an older one, compiled for this device by the driver, nothing is known.
            let mut version = 0;
            // SAFETY: writes a number.
            let asked = unsafe {
                let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
                sys::cuFuncGetAttribute(&mut version, which, function)
            };
            check(asked, "cuFuncGetAttribute")?;
            return Ok(Kernel { function, waits: version >= WAITS_FROM });
        }
        Err(Error::unsupported(format!("config: this build has no kernel {name}")))
    }

    pub(super) fn get(&self, name: &str) -> Kernel {
        *self.found.get(name).expect("every kernel that is used was asked for")
    }
}

/// What is wrong with an image: invalid, no code for this device, PTX that this driver does not
/// compile. Everything else is no matter of the image.
fn of_image(error: Error) -> Error {
    match error {
        Error::Device { code: 200 | 209 | 218 | 221..=223, .. } => Error::unsupported(format!(
            "config.device: the kernels of this build don't run on it: {error}"
        )),
        other => other,
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            for &library in &self.libraries {
                // SAFETY: loaded by `load`.
                let _ = unsafe { sys::cuLibraryUnload(library) };
            }
        }
    }
}

impl Kernel {
    /// How many of its blocks a multiprocessor holds at a time, as the driver says; 1 at least.
    /// The context is current.
    pub(super) fn blocks(self, threads: usize, shared_bytes: usize) -> Result<usize, Error> {
        let mut blocks = 0;
        // SAFETY: writes a number; a kernel of a loaded library.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.function,
                threads as i32,
                shared_bytes,
            )
        };
        check(result, "cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        Ok(blocks.max(1) as usize)
    }

    /// Launches it on a stream. The context is current.
    ///
    /// # Safety
    /// `arguments` are of the type that the kernel takes, and lead to memory of the shapes that
    /// they say.
    pub(super) unsafe fn launch<T: Plain>(
        self,
        grid: [usize; 3],
        threads: usize,
        shared_bytes: usize,
        arguments: &T,
        stream: Stream,
    ) -> Result<(), Error> {
        let mut parameters = [ptr::from_ref(arguments).cast_mut().cast::<c_void>()];
        let [x, y, z] = grid.map(|extent| extent as u32);
        // SAFETY: the caller's contract; the driver copies the arguments before it returns.
        let result = unsafe {
            sys::cuLaunchKernel(
                self.function,
                x,
                y,
                z,
                threads as u32,
                1,
                1,
                shared_bytes as u32,
                stream.raw(),
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        check(result, "cuLaunchKernel")
    }

    /// For a place behind what is not ours: it begins when all of that has ended.
    pub(super) fn behind_others(self) -> Self {
        Self { waits: false, ..self }
    }

    /// Launches it behind another kernel of this call, on the same stream. Where its code waits for
    /// that one by itself, its blocks may come before that one has ended.
    ///
    /// # Safety
    /// That of `launch`; what was launched before is a kernel that begins with `begin_launch`.
    pub(super) unsafe fn launch_after<T: Plain>(
        self,
        grid: [usize; 3],
        threads: usize,
        shared_bytes: usize,
        arguments: &T,
        stream: Stream,
    ) -> Result<(), Error> {
        if !self.waits {
            // SAFETY: the caller's contract.
            return unsafe { self.launch(grid, threads, shared_bytes, arguments, stream) };
        }
        let mut parameters = [ptr::from_ref(arguments).cast_mut().cast::<c_void>()];
        let [x, y, z] = grid.map(|extent| extent as u32);
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: threads as u32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared_bytes as u32,
            hStream: stream.raw(),
            attrs: &mut attribute,
            numAttrs: 1,
        };
        // SAFETY: the caller's contract; the driver copies the arguments before it returns.
        let result = unsafe {
            sys::cuLaunchKernelEx(&config, self.function, parameters.as_mut_ptr(), ptr::null_mut())
        };
        check(result, "cuLaunchKernelEx")
    }
}
