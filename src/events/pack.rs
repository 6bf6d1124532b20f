//! MessagePack, value by value.
use super::spaces::SpaceLabel;
use crate::token::PageDigest;
use rmp::encode::{self, ValueWriteError};
use std::fmt::Display;
use std::io::{self, Write};

/// Writes values one after another.
pub(super) struct Pack<'a>(pub &'a mut dyn Write);

type Done = io::Result<()>;

fn done<T>(written: Result<T, ValueWriteError<io::Error>>) -> Done {
    written.map(drop).map_err(io::Error::from)
}

/// Bytes that a text takes.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Pack<'_> {
    /// A map follows, with so many keys.
    pub fn map(&mut self, len: usize) -> Done {
        done(encode::write_map_len(&mut self.0, len as u32))
    }

    /// An array follows.
    pub fn array(&mut self, len: usize) -> Done {
        done(encode::write_array_len(&mut self.0, len as u32))
    }

    pub fn text(&mut self, text: &str) -> Done {
        done(encode::write_str(&mut self.0, text))
    }

    /// A text that is made as it is written, without memory for it.
    pub fn made_text(&mut self, text: impl Display) -> Done {
        let mut counted = Counted(0);
        write!(counted, "{text}")?;
        done(encode::write_str_len(&mut self.0, counted.0 as u32))?;
        write!(self.0, "{text}")
    }

    pub fn label(&mut self, label: Option<SpaceLabel<'_>>) -> Done {
        match label {
            None => self.nil(),
            Some(SpaceLabel::Text(text)) => self.text(text),
            Some(SpaceLabel::Number(number)) => self.made_text(number),
            Some(SpaceLabel::Digest(digest)) => self.made_text(digest),
        }
    }

    pub fn number(&mut self, number: u64) -> Done {
        done(encode::write_uint(&mut self.0, number))
    }

    pub fn signed(&mut self, number: i64) -> Done {
        done(encode::write_sint(&mut self.0, number))
    }

    pub fn nil(&mut self) -> Done {
        encode::write_nil(&mut self.0)
    }

    /// A number, or nothing.
    pub fn maybe(&mut self, number: Option<u64>) -> Done {
        number.map_or(Ok(()), |number| self.number(number))?;
        if number.is_none() { self.nil() } else { Ok(()) }
    }

    /// The whole of a digest, or the number that its last 64 bits are.
    pub fn digest(&mut self, digest: &PageDigest, is_wide: bool) -> Done {
        if is_wide {
            return done(encode::write_bin(&mut self.0, &digest.0));
        }
        self.number(u64::from_be_bytes(*digest.0.last_chunk().expect("there are 32")))
    }
}
