//! Messages that need no memory of which there may be none.
//!
//! A message is written into new memory. When there is none, it goes into a buffer that was made
//! while there was, and that it gives back; when those are all in use, a message says just that.
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::ops::Deref;
use std::sync::{Mutex, TryLockError};

/// What went wrong, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(Cow<'static, str>);

impl From<&'static str> for Message {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl Deref for Message {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Cow::Owned(text) = &mut self.0
            && text.capacity() == BUFFER_BYTES
        {
            give_back(std::mem::take(text));
        }
    }
}

/// Buffers made beforehand, and the bytes of one: few messages are longer.
const BUFFERS: usize = 4;
const BUFFER_BYTES: usize = 512;

static BUFFERS_MADE: [Mutex<Option<String>>; BUFFERS] = [const { Mutex::new(None) }; BUFFERS];

/// Makes the buffers, as far as there are none. To be called while there is memory.
pub fn prepare() {
    for buffer in &BUFFERS_MADE {
        if let Ok(mut buffer) = buffer.try_lock()
            && buffer.is_none()
        {
            let mut made = String::new();
            if made.try_reserve_exact(BUFFER_BYTES).is_ok() {
                *buffer = Some(made);
            }
        }
    }
}

/// Keeps a buffer for the next message, if there is a place for it.
#[cold]
fn give_back(mut text: String) {
    text.clear();
    let mut places = BUFFERS_MADE.iter().filter_map(|place| place.try_lock().ok());
    if let Some(mut place) = places.find(|place| place.is_none()) {
        *place = Some(text);
    }
}

fn prepared() -> Option<String> {
    BUFFERS_MADE.iter().find_map(|buffer| match buffer.try_lock() {
        Ok(mut buffer) => buffer.take(),
        Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => None,
    })
}

/// Text that grows while there is memory.
struct Growing(String);

impl Write for Growing {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0.try_reserve(part.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(part);
        Ok(())
    }
}

/// Text that is cut off where its room ends.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = self.0.capacity() - self.0.len();
        self.0.push_str(&part[..part.floor_char_boundary(room)]);
        Ok(())
    }
}

/// `format!`, for messages.
#[doc(hidden)]
pub fn write(arguments: fmt::Arguments<'_>) -> Message {
    if let Some(text) = arguments.as_str() {
        return text.into();
    }
    let mut growing = Growing(String::new());
    if growing.write_fmt(arguments).is_ok() {
        return growing.0.into();
    }
    match prepared().map(Bounded) {
        Some(mut bounded) => {
            // It never fails; what doesn't fit is left out.
            let _ = bounded.write_fmt(arguments);
            bounded.0.into()
        }
        None => "the call was refused; there is no memory to say why".into(),
    }
}

/// `format!`, for messages: without memory it does with what was made beforehand.
macro_rules! text {
    ($($arguments:tt)*) => {
        $crate::error::write_message(format_args!($($arguments)*))
    };
}
pub(crate) use text;

#[cfg(test)]
mod tests {
    use super::{BUFFER_BYTES, Bounded, prepare, prepared};
    use std::fmt::Write;

    #[test]
    fn a_message_is_cut_to_a_buffer() {
        prepare();
        let mut bounded = Bounded(prepared().unwrap());
        (0..200).for_each(|_| bounded.write_str("é ").unwrap());
        assert!((BUFFER_BYTES - 2..=BUFFER_BYTES).contains(&bounded.0.len()));
        assert!(bounded.0.starts_with("é é é"));
    }
}
