//! Memory for arguments, each piece of exactly the size that is stated.
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::rkv_status;
use std::alloc::{Layout, alloc, dealloc};
use std::ptr;

/// What an output holds before the call.
const FILL: u8 = 0xA5;
/// Structs are never larger; the library refuses to look further.
const STRUCT_LIMIT: usize = 4096;

/// Who may write to a piece, and when.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// Nobody.
    Input,
    /// A call that succeeds.
    Output,
    /// The same, and one that returns RKV_STATUS_BUFFER_TOO_SMALL.
    Count,
}

struct Piece {
    start: *mut u8,
    layout: Layout,
    before: Vec<u8>,
    role: Role,
}

/// The memory behind the pointers of one call.
#[derive(Default)]
pub struct Arena {
    pieces: Vec<Piece>,
}

/// How a pointer is.
enum Shape {
    Good,
    Null,
    Misaligned,
}

fn shape(input: &mut Input<'_>) -> Shape {
    match input.below(24) {
        22 => Shape::Null,
        23 => Shape::Misaligned,
        _ => Shape::Good,
    }
}

impl Arena {
    fn piece(&mut self, bytes: &[u8], shape: Shape, align: usize, role: Role) -> *mut u8 {
        let shift = match shape {
            Shape::Null => return ptr::null_mut(),
            Shape::Misaligned if align > 1 => 1,
            _ => 0,
        };
        let layout = Layout::from_size_align((bytes.len() + shift).max(1), 16).unwrap();
        // SAFETY: the size is not zero, and `shift` bytes are beyond those copied.
        let start = unsafe {
            let start = alloc(layout);
            assert!(!start.is_null());
            start.write_bytes(FILL, layout.size());
            start.add(shift).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            start
        };
        // SAFETY: the piece has just been written whole.
        let before = unsafe { std::slice::from_raw_parts(start, layout.size()) }.to_vec();
        self.pieces.push(Piece { start, layout, before, role });
        // SAFETY: the piece is at least as long as `shift`.
        unsafe { start.add(shift) }
    }

    /// An array to read.
    pub fn list<T: Copy>(&mut self, input: &mut Input<'_>, values: &[T]) -> (*const T, usize) {
        let shape = shape(input);
        // An absurd count is refused before anything is read.
        let count = if input.rarely(24) { usize::MAX - values.len() } else { values.len() };
        // SAFETY: the types that are passed have no padding.
        let bytes =
            unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
        (self.piece(bytes, shape, align_of::<T>(), Role::Input).cast(), count)
    }

    /// Room for an array, and how much.
    pub fn room<T>(&mut self, input: &mut Input<'_>, limit: usize) -> (*mut T, usize) {
        let count = input.below(limit + 1);
        match shape(input) {
            Shape::Null if input.flag() => (ptr::null_mut(), super::values::size(input)),
            Shape::Null => (ptr::null_mut(), 0),
            shape => (self.exact(shape, count), count),
        }
    }

    /// Room for so many bytes, aligned for an element.
    pub fn room_bytes<T>(&mut self, input: &mut Input<'_>, bytes: usize) -> (*mut T, usize) {
        let shape = shape(input);
        let filled = vec![FILL; bytes];
        (self.piece(&filled, shape, align_of::<T>(), Role::Output).cast(), bytes)
    }

    /// Room for exactly so many elements.
    pub fn room_for<T>(&mut self, input: &mut Input<'_>, count: usize) -> *mut T {
        let shape = shape(input);
        self.exact(shape, count)
    }

    fn exact<T>(&mut self, shape: Shape, count: usize) -> *mut T {
        let bytes = vec![FILL; count * size_of::<T>()];
        self.piece(&bytes, shape, align_of::<T>(), Role::Output).cast()
    }

    /// Room for one value.
    pub fn out<T>(&mut self, input: &mut Input<'_>) -> *mut T {
        self.room_for(input, 1)
    }

    /// Room for a count that is also written when a buffer is too small.
    pub fn count(&mut self, input: &mut Input<'_>) -> *mut usize {
        let shape = shape(input);
        self.piece(&[FILL; 8], shape, align_of::<usize>(), Role::Count).cast()
    }

    /// A struct to read, of any size.
    pub fn read<T: Sized32>(&mut self, input: &mut Input<'_>, value: &T) -> *const T {
        // SAFETY: the structs of the ABI have no padding.
        let bytes = unsafe {
            std::slice::from_raw_parts(ptr::from_ref(value).cast::<u8>(), size_of::<T>())
        };
        self.structure(input, bytes, Role::Input).cast()
    }

    /// A struct to write to, of any size.
    pub fn write<T: Sized32>(&mut self, input: &mut Input<'_>) -> *mut T {
        self.structure(input, &vec![FILL; size_of::<T>()], Role::Output).cast()
    }

    /// The same for a struct of which a part is written when a buffer is too small.
    pub fn write_partly<T: Sized32>(&mut self, input: &mut Input<'_>) -> *mut T {
        self.structure(input, &vec![FILL; size_of::<T>()], Role::Count).cast()
    }

    fn structure(&mut self, input: &mut Input<'_>, value: &[u8], role: Role) -> *mut u8 {
        let shape = shape(input);
        let known = value.len();
        let stated = match input.below(16) {
            0 => input.below(known),
            1 => known + 8 * input.below(8),
            2 => STRUCT_LIMIT - input.below(2),
            3 => super::values::number(input) as usize,
            _ => known,
        };
        let backed = if stated <= STRUCT_LIMIT { stated } else { known };
        let mut bytes = value.to_vec();
        bytes.resize(backed.max(size_of::<u32>()), 0);
        if role != Role::Input {
            bytes.fill(FILL);
        } else if backed > known && input.rarely(4) {
            bytes[backed - 1] = 1;
        }
        bytes[..4].copy_from_slice(&(stated as u32).to_ne_bytes());
        self.piece(&bytes, shape, 8, role)
    }

    /// Inputs are as they were, and so are the outputs of a call that failed.
    pub fn check(&self, status: rkv_status) {
        for piece in &self.pieces {
            let may_write = match piece.role {
                Role::Input => false,
                Role::Output => status == rkv_status::Ok,
                Role::Count => matches!(status, rkv_status::Ok | rkv_status::BufferTooSmall),
            };
            // SAFETY: the piece is alive and was written whole.
            let now = unsafe { std::slice::from_raw_parts(piece.start, piece.layout.size()) };
            assert!(
                may_write || now == piece.before,
                "{status:?}, and yet an argument was written to: {}",
                crate::abi::last_message()
            );
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for piece in &self.pieces {
            // SAFETY: allocated with this layout, and freed once.
            unsafe { dealloc(piece.start, piece.layout) };
        }
    }
}
