//! Where the machine code of the kernels comes from: this library, or a folder beside it.
use crate::error::Error;
use std::path::Path;
use std::sync::OnceLock;
use std::{env, fs, io};

// `static EMBEDDED: &[&[u8]]`: a fatbin for each source, none when the library was built without
// nvcc; EMBEDDED_HOPPER: those that only Hopper can load.
include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// Names the folder of images, as the build leaves them in target/kernels.
const FOLDER: &str = "RADIXKV_KERNELS";
/// In that folder: which sources the images were made of.
const SOURCES_FILE: &str = "sources";
/// What that file must say. The host's structs and the kernels' are two copies of one thing.
const SOURCES: &str = env!("RKV_KERNEL_SOURCES");
/// Images of this name are for Hopper alone.
const HOPPER_PREFIX: &str = "attn_sm90";
/// Of an image in memory: the driver wants them aligned.
const ALIGNMENT: usize = 64;

/// The machine code of the kernels.
#[derive(Debug, Clone, Copy)]
pub struct Images {
    pub(super) common: &'static [&'static [u8]],
    pub(super) hopper: &'static [&'static [u8]],
}

impl Images {
    /// What this library was built with.
    pub fn embedded() -> Self {
        Self { common: EMBEDDED, hopper: EMBEDDED_HOPPER }
    }

    /// For a driver that takes any: the emulated one of the tests.
    ///
    /// # Safety
    /// They are this version's kernels as nvcc made them, each with its own length in it, or the
    /// driver looks at none.
    #[doc(hidden)]
    pub unsafe fn of(images: &'static [&'static [u8]]) -> Self {
        Self { common: images, hopper: images }
    }

    /// What this process computes with: the images of the folder that RADIXKV_KERNELS names, else
    /// those that this library was built with. Read once; the error says what is wrong with them.
    pub fn available() -> Result<Self, Error> {
        static FOUND: OnceLock<Result<Images, Error>> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return found.clone();
        }
        // Before it is kept, for it takes long: a child process would wait for a thread that is not
        // there. Two threads at once may read it twice.
        let found = match env::var_os(FOLDER) {
            Some(folder) if !folder.is_empty() => Self::read(Path::new(&folder)),
            _ => Ok(Self::embedded()),
        };
        FOUND.get_or_init(|| found).clone()
    }

    /// Whether there are kernels for Hopper's own instructions.
    pub(super) fn has_hopper(&self) -> bool {
        !self.hopper.is_empty()
    }

    /// Whether there are kernels.
    pub fn is_empty(&self) -> bool {
        self.common.is_empty()
    }

    /// Reads a folder, for as long as the process lives.
    fn read(folder: &Path) -> Result<Self, Error> {
        let wrong =
            |what: &str| Error::unsupported(format!("{FOLDER}: {}: {what}", folder.display()));
        let unreadable = |error: io::Error| wrong(&error.to_string());
        let sources = fs::read_to_string(folder.join(SOURCES_FILE)).map_err(unreadable)?;
        if sources.trim() != SOURCES {
            return Err(wrong("its kernels are not those of this version of the library"));
        }
        let (mut common, mut hopper) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let (Some(name), Some("fatbin")) = (
                path.file_stem().and_then(|name| name.to_str()),
                path.extension().and_then(|extension| extension.to_str()),
            ) else {
                continue;
            };
            let of = if name.starts_with(HOPPER_PREFIX) { &mut hopper } else { &mut common };
            of.push(kept(&fs::read(&path).map_err(unreadable)?));
        }
        if common.is_empty() {
            return Err(wrong("there is no .fatbin in it"));
        }
        Ok(Self { common: common.leak(), hopper: hopper.leak() })
    }
}

/// An aligned copy that stays.
fn kept(image: &[u8]) -> &'static [u8] {
    let room = vec![0_u8; image.len() + ALIGNMENT].leak();
    let begin = room.as_ptr().align_offset(ALIGNMENT);
    let place = &mut room[begin..begin + image.len()];
    place.copy_from_slice(image);
    place
}
