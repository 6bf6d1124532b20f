//! Memory of many megabytes, which is filled once and soon.
use super::{OutOfMemory, try_zeros};

/// `try_zeros`, for what is written from end to end: where the system lends large pages to who asks
/// for them, its first touch costs a fault for two megabytes and not one for each four kilobytes,
/// which takes longer than the copy.
pub fn try_large_zeros<T: bytemuck::Zeroable>(count: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut zeros = try_zeros::<T>(count)?;
    ask_for_large_pages(&mut zeros);
    Ok(zeros)
}

#[cfg(all(target_os = "linux", not(miri)))]
fn ask_for_large_pages<T>(memory: &mut [T]) {
    use rustix::mm::{Advice, madvise};
    /// Less is not worth a call.
    const LEAST: usize = 4 << 20;
    const PAGE: usize = 4096;
    let bytes = size_of_val(memory);
    if bytes < LEAST {
        return;
    }
    let skipped = memory.as_ptr().cast::<u8>().align_offset(PAGE);
    let length = (bytes - skipped) / PAGE * PAGE;
    // SAFETY: whole pages within memory that is ours alone; the advice changes no byte. Nothing is
    // lost where it is refused.
    let _ = unsafe {
        let start = memory.as_mut_ptr().cast::<u8>().add(skipped);
        madvise(start.cast(), length, Advice::LinuxHugepage)
    };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_for_large_pages<T>(_: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_memory_is_zero_and_can_be_written() {
        for count in [0, 1, 100, (4 << 20) / 8, (9 << 20) / 8 + 3] {
            let mut zeros = try_large_zeros::<u64>(count).unwrap();
            assert_eq!(zeros.len(), count);
            assert!(zeros.iter().all(|&word| word == 0));
            zeros.fill(7);
            assert!(zeros.iter().all(|&word| word == 7));
        }
    }
}
