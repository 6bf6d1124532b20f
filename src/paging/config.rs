//! How to build a page table.
use crate::error::{Error, Message, text};
use crate::group::{GROUP_LIMIT, Groups, check_count};
use crate::ids::SLOT_LIMIT;
use crate::token::PAGE_SIZE_MAX;

/// Pages of each pool beside the first, the reserved one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MorePools {
    counts: [u32; GROUP_LIMIT - 1],
    len: u8,
}

impl MorePools {
    /// A list of pools.
    pub fn new(list: &[u32]) -> Result<Self, Error> {
        let mut pools = Self::default();
        check_count(list.len() + 1, "config.pool_count")?;
        pools.counts[..list.len()].copy_from_slice(list);
        pools.len = list.len() as u8;
        Ok(pools)
    }

    /// All of them.
    pub fn list(&self) -> &[u32] {
        &self.counts[..self.len as usize]
    }
}

/// How to build a page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageTableConfig {
    /// Positions of a page.
    pub page_size: u32,
    /// Pages, the reserved one included.
    pub page_count: u32,
    /// Rows.
    pub slot_count: u32,
    /// Pages of the longest row; 0 for all.
    pub row_page_limit: u32,
    /// The groups of layers; one that is FULL when nothing is said.
    pub groups: Groups,
    /// Pages of the pools beside the first, which has `page_count`.
    pub more_pools: MorePools,
    /// Somebody else hands the pages out. Then there are no rows, and neither of the two fields
    /// before counts.
    pub external_pool: bool,
}

impl Default for PageTableConfig {
    fn default() -> Self {
        Self {
            page_size: 16,
            page_count: 0,
            slot_count: 256,
            row_page_limit: 0,
            groups: Groups::default(),
            more_pools: MorePools::default(),
            external_pool: false,
        }
    }
}

impl PageTableConfig {
    pub(super) fn check(&self) -> Result<(), Error> {
        let fail = |text: Message| Err(Error::argument(text));
        if self.page_size == 0 || self.page_size as usize > PAGE_SIZE_MAX {
            return fail(text!(
                "config.page_size {} is not in 1..={PAGE_SIZE_MAX}",
                self.page_size
            ));
        }
        check_page_count(self.page_count).map_err(|what| named("", what))?;
        for (at, &pages) in self.more_pools.list().iter().enumerate() {
            let name = text!("pools[{}].", at + 1);
            check_page_count(pages).map_err(|what| named(&name, what))?;
        }
        self.groups.check(1 + self.more_pools.list().len())?;
        if self.external_pool {
            return Ok(());
        }
        if self.slot_count == 0 || self.slot_count > SLOT_LIMIT {
            return fail(text!("config.slot_count {} is not in 1..=2^20", self.slot_count));
        }
        if self.row_page_limit >= self.page_count {
            return fail(text!(
                "config.row_page_limit {} is more than the pages there are",
                self.row_page_limit
            ));
        }
        Ok(())
    }
}

pub(crate) fn check_page_count(count: u32) -> Result<(), Message> {
    if count < 2 {
        return Err(text!("page_count {count} is less than 2: page 0 is reserved"));
    }
    if count > i32::MAX as u32 {
        return Err(text!("page_count {count} is not below 2^31"));
    }
    Ok(())
}

#[cold]
fn named(pool: &str, what: Message) -> Error {
    Error::argument(text!("config.{pool}{what}"))
}
