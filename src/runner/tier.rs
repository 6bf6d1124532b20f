//! Pages that are copied to host memory and back.
use super::Runner;
use super::backend::Backend;
use crate::cpu::PackedPage;
use crate::error::{Error, text};

/// A copy of a page of every layer, one after the other, K before V.
#[derive(Debug, Clone, Copy)]
pub struct TierCopy {
    /// The group whose page it is.
    pub group: u32,
    /// The page.
    pub page: u32,
    /// Where it lies in host memory.
    pub host: *mut u8,
    /// Bytes there.
    pub bytes: usize,
    /// From host memory to the page, or the other way.
    pub is_load: bool,
}

impl Runner {
    /// Copies pages to host memory, and from there.
    ///
    /// # Safety
    /// So many bytes can be read or written at `host`, and nobody uses them or the pages otherwise.
    pub unsafe fn copy_tier_pages(
        &self,
        copies: impl Iterator<Item = TierCopy> + Clone,
    ) -> Result<(), Error> {
        let Backend::Cpu(cpu) = &self.backend else {
            return Err(Error::unsupported(
                "a runner on a GPU does not copy pages of tiers: the engine does, on a stream of \
                 its own",
            ));
        };
        let (pages, bytes) = (self.memory.page_count(), self.page_bytes());
        for (at, copy) in copies.clone().enumerate() {
            if copy.group as usize != self.config.group {
                return Err(Error::argument(text!(
                    "jobs[{at}].group {} is not the runner's {}",
                    copy.group,
                    self.config.group
                )));
            }
            if copy.page == 0 || copy.page as usize >= pages {
                return Err(Error::argument(text!("jobs[{at}].page {} is no page", copy.page)));
            }
            if copy.host.is_null() {
                return Err(Error::argument(text!("jobs[{at}].host is NULL")));
            }
            if copy.bytes != bytes {
                return Err(Error::argument(text!(
                    "jobs[{at}].byte_count {} is not the {bytes} of a page in all layers",
                    copy.bytes
                )));
            }
        }
        for TierCopy { page, host, is_load, .. } in copies {
            let packed = PackedPage { page, host, is_load };
            // SAFETY: the page is in range; the rest is the caller's contract.
            unsafe { cpu.copy_packed(self.memory.layers(), &self.geometry, &packed) };
        }
        Ok(())
    }
}
