//! Why a store is not opened.
use crate::error::{Error, text};
use crate::memory::OutOfMemory;
use crate::tier::paged::OtherSize;
use crate::tier::records::RecordsError;
use std::io;

/// Why a store is not opened. Its files are whole, but what the bound has no room for may be gone:
/// it goes before the threads are there, and before the last memory is.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another store, of another process or of this one, has the directory.
    #[error("the store in {directory} is in use; close the other one, or name another directory")]
    InUse {
        /// Where it is; of a long name the end.
        directory: String,
    },
    /// Another version of this library wrote it.
    #[error(
        "the store in {directory} has format {found}, and this library knows {FORMAT}; \
         empty the directory, name another one, or use the library that wrote it"
    )]
    Version {
        /// Where it is; of a long name the end.
        directory: String,
        /// The version of its format.
        found: u32,
    },
    /// It is another model's, or of another layout.
    #[error(
        "the store in {directory} has another fingerprint, that of another model or layout; \
         name a directory for each, or empty this one"
    )]
    Fingerprint {
        /// Where it is; of a long name the end.
        directory: String,
    },
    /// Its records are of the other kind.
    #[error("the store in {directory} has {found}; name a directory for each kind of cache")]
    Contents {
        /// Where it is; of a long name the end.
        directory: String,
        /// What it has.
        found: &'static str,
    },
    /// Its pages have other sizes, or are of groups that aren't there.
    #[error(
        "the store in {directory} has {other}; give the sizes that it was made with, name a \
         directory for each layout, or empty this one"
    )]
    Pages {
        /// Where it is; of a long name the end.
        directory: String,
        /// The first of them that was found.
        other: OtherSize,
    },
    /// Its files are not what was written.
    #[error("the store in {directory} is damaged ({what}); empty the directory")]
    Damaged {
        /// Where it is; of a long name the end.
        directory: String,
        /// What is wrong.
        what: String,
    },
    /// It has files of somebody else's.
    #[error("{directory} has a file `{file}` that is no store's; name another directory")]
    Foreign {
        /// Where it is; of a long name the end.
        directory: String,
        /// The first of them that was found.
        file: &'static str,
    },
    /// The system refused.
    #[error(
        "the store in {directory} cannot be opened ({source}); \
         check that this is a directory that can be written to, and that the disk has space"
    )]
    Io {
        /// Where it is; of a long name the end.
        directory: String,
        /// What it said.
        source: io::Error,
    },
    /// The host has no memory for it.
    #[error("there is no memory for the store in {directory}; allow it fewer bytes or workers")]
    OutOfMemory {
        /// Where it is; of a long name the end.
        directory: String,
    },
}

/// Of the files and of the notes in them, as they are now.
pub(super) const FORMAT: u32 = 3;

/// Bytes of a directory's name that are told: a message has room for a kilobyte, and why comes
/// behind it.
const NAME_BYTES: usize = 256;

/// Of a long name the end.
fn end_of(mut directory: String) -> String {
    const LEFT_OUT: &str = "...";
    if directory.len() > NAME_BYTES {
        let from = directory.len() - (NAME_BYTES - LEFT_OUT.len());
        directory.drain(..directory.ceil_char_boundary(from));
        directory.insert_str(0, LEFT_OUT); // into what was just left out
    }
    directory
}

/// The same without a name.
pub(super) enum Cause {
    InUse,
    Version(u32),
    Fingerprint,
    Contents(&'static str),
    Pages(OtherSize),
    Damaged(String),
    Foreign(&'static str),
    Io(io::Error),
    OutOfMemory,
}

impl Cause {
    pub fn of(self, directory: String) -> OpenError {
        let directory = end_of(directory);
        match self {
            Self::InUse => OpenError::InUse { directory },
            Self::Version(found) => OpenError::Version { directory, found },
            Self::Fingerprint => OpenError::Fingerprint { directory },
            Self::Contents(found) => OpenError::Contents { directory, found },
            Self::Pages(other) => OpenError::Pages { directory, other },
            Self::Damaged(what) => OpenError::Damaged { directory, what },
            Self::Foreign(file) => OpenError::Foreign { directory, file },
            Self::Io(source) => OpenError::Io { directory, source },
            Self::OutOfMemory => OpenError::OutOfMemory { directory },
        }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::OutOfMemory { Self::OutOfMemory } else { Self::Io(error) }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::OutOfMemory { directory } => {
                Self::memory(text!("the store in {directory}; allow it fewer bytes or workers"))
            }
            // What the others say is about the directory.
            other => Self::Storage(text!("{other}")),
        }
    }
}

impl From<OutOfMemory> for Cause {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<RecordsError> for Cause {
    fn from(error: RecordsError) -> Self {
        match error {
            RecordsError::Damaged(what) => Self::Damaged(what),
            RecordsError::Io(error) => error.into(),
            RecordsError::OutOfMemory => Self::OutOfMemory,
            RecordsError::Misplaced => Self::Damaged("a key leads to no row".to_owned()),
        }
    }
}
