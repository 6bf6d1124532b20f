//! Gather and scatter of strides, positions and pages that no call of the library launches them
//! with.
use super::device::{self, Memory};
use super::emulator::{Driver, is_real};
use cudarc::driver::sys;
use std::ffi::{CString, c_void};
use std::ptr;

#[repr(C)]
struct Arguments {
    layers: u64,
    copies: u64,
    dense: u64,
    strides: [i64; 3],
    sizes: [i32; 4],
}

fn launch(name: &str, grid: [u32; 3], arguments: &Arguments) {
    let (mut library, mut kernel, mut function) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let name = CString::new(name).unwrap();
    let none = ptr::null_mut();
    let ok = |result| assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
    let mut parameters = [ptr::from_ref(arguments).cast_mut().cast::<c_void>()];
    // SAFETY: the emulated driver looks at no image; the rest is as the kernel wants it.
    unsafe {
        let image = c"emulated".as_ptr().cast();
        ok(sys::cuLibraryLoadData(
            &mut library,
            image,
            none,
            none.cast(),
            0,
            none.cast(),
            none.cast(),
            0,
        ));
        ok(sys::cuLibraryGetKernel(&mut kernel, library, name.as_ptr()));
        ok(sys::cuKernelGetFunction(&mut function, kernel));
        let [x, y, z] = grid;
        let stream = ptr::null_mut();
        let extra = ptr::null_mut();
        let parameters = parameters.as_mut_ptr();
        ok(sys::cuLaunchKernel(function, x, y, z, 128, 1, 1, 0, stream, parameters, extra));
    }
}

#[test]
fn pages_go_to_dense_memory_and_come_back() {
    if is_real() {
        return;
    }
    let driver = Driver::get();
    let _entered = device::enter();
    // Two layers of 6 pages of 4 positions, 3 heads of 32 bytes, padded by 16.
    let (head, position, page) = (48, 3 * 48, 4 * 3 * 48 + 16);
    let bytes: Vec<u8> = (0..6 * page).map(|at| (at * 7 % 251) as u8).collect();
    let memory: Vec<Memory> = (0..4)
        .map(|which| Memory::of(&bytes.iter().map(|byte| byte ^ which).collect::<Vec<_>>()))
        .collect();
    let address = |memory: &Memory| memory.address().addr() as u64;
    let words = |words: &[u64]| {
        Memory::of(&words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>())
    };
    let layers = words(&memory.iter().map(address).collect::<Vec<_>>());
    // (source, target), (positions, 0)
    let pair = |low: u64, high: u64| low | high << 32;
    let copies = words(&[pair(2, 5), pair(4, 0), pair(3, 1), pair(3, 0)]);
    let dense = Memory::of(&vec![0xee; 2 * 2 * 2 * 4 * 3 * 32]);
    let arguments = Arguments {
        layers: address(&layers),
        copies: address(&copies),
        dense: address(&dense),
        strides: [page as i64, position as i64, head as i64],
        sizes: [3, 32, 4, 2],
    };
    launch("rkv_page_gather", [2, 2, 2], &arguments);
    launch("rkv_page_scatter", [2, 2, 2], &arguments);
    assert_eq!(driver.fault(), "");
    for (which, memory) in memory.iter().enumerate() {
        let before: Vec<u8> = bytes.iter().map(|byte| byte ^ which as u8).collect();
        let mut expected = before.clone();
        for (source, target, positions) in [(2, 5, 4), (3, 1, 3)] {
            for row in 0..positions * 3 {
                let inside = row / 3 * position + row % 3 * head;
                let from = source * page + inside;
                let to = target * page + inside;
                expected[to..to + 32].copy_from_slice(&before[from..from + 32]);
            }
        }
        assert_eq!(memory.read(), expected);
    }
    let gathered = dense.read();
    // The second copy has three positions: the fourth is left alone.
    let second = &gathered[4 * 4 * 3 * 32..];
    assert!(second[3 * 3 * 32..4 * 3 * 32].iter().all(|&byte| byte == 0xee));
}
