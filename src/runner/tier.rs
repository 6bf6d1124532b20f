//! Pages that are copied to host memory and back.
use super::Runner;
use super::backend::Backend;
use crate::attention::PackedPage;
use crate::error::{Error, text};
use crate::memory::try_collect;
use crate::store::State;

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
    /// Copies pages to host memory, and from there, and waits for that. On a GPU after what calls
    /// put on streams before.
    ///
    /// # Safety
    /// So many bytes can be read or written at `host`, and nobody uses them or the pages otherwise.
    /// `copies` is gone through more than once, and gives the same each time.
    pub unsafe fn copy_tier_pages(
        &self,
        copies: impl ExactSizeIterator<Item = TierCopy> + Clone,
    ) -> Result<(), Error> {
        self.shared.check_whole()?;
        let state = self.shared.read();
        for (at, copy) in copies.clone().enumerate() {
            self.check_tier_copy(&state, at, &copy)?;
        }
        drop(state);
        let layers = self.memory.layers();
        let packed =
            copies.map(|TierCopy { page, host, is_load, .. }| PackedPage { page, host, is_load });
        match &self.backend {
            Backend::Cpu(cpu) => {
                for page in packed {
                    // SAFETY: the page is in range; the rest is the caller's contract.
                    unsafe { cpu.copy_packed(layers, &self.geometry, &page) };
                }
                Ok(())
            }
            Backend::Cuda(cuda) => {
                let packed = try_collect(packed)?;
                // SAFETY: as above.
                unsafe { cuda.copy_packed(layers, self.memory.page_count(), &packed) }
            }
        }
    }

    fn check_tier_copy(&self, state: &State, at: usize, copy: &TierCopy) -> Result<(), Error> {
        let bytes = self.page_bytes();
        let wrong = |what: &str| Err(Error::argument(text!("jobs[{at}].{what}")));
        if copy.group as usize != self.config.group {
            return wrong(&text!("group {} is not the runner's {}", copy.group, self.config.group));
        }
        if copy.page == 0 || copy.page as usize >= self.memory.page_count() {
            return wrong(&text!("page {} is no page", copy.page));
        }
        // A copy that is complete, carried out again, would write to whoever has the page now.
        if copy.is_load && !state.may_be_loaded(copy.page, self.group.pool) {
            return wrong(&text!("page {} is to be loaded, and is not private", copy.page));
        }
        if copy.host.is_null() {
            return wrong("host is NULL");
        }
        if copy.bytes != bytes {
            return wrong(&text!(
                "byte_count {} is not the {bytes} of a page in all layers",
                copy.bytes
            ));
        }
        Ok(())
    }
}
