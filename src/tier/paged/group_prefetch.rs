//! Prefetches with several groups of layers: what the farthest end needs that all groups can go on
//! from. The remote store is asked as it is for a fetch; when it has answered there is another end.
use super::group_fetch::{DeviceSets, Planned};
use super::group_plan::Place;
use super::known::{Beyond, Fetchable};
use super::prefetch::Brings;
use super::work::PageTiers;
use crate::error::Error;
use crate::memory::try_box;
use crate::token::PageDigest;

impl PageTiers {
    /// What is to be brought of a prompt that nobody has begun with. What the device has beyond
    /// where it can be reused is not counted on.
    pub(super) fn brings_of_groups(
        &self,
        beyond: &Beyond,
        asks: bool,
        digest: impl FnMut(usize, PageDigest, &mut [PageDigest]) -> Result<usize, Error>,
    ) -> Result<Brings, Error> {
        let device = DeviceSets::default();
        let Planned { mut plan, before, .. } =
            self.group_plan(beyond, &device, (usize::MAX, asks), digest)?;
        let anywhere = |_: usize| true;
        let at_once = plan.reach(Place::at_once, anywhere);
        plan.target = plan.reach(Place::anywhere, anywhere);
        let positions = |pages: usize| pages * self.page_size;
        let is_asked = asks && plan.lacks_any();
        let found = Fetchable {
            positions: positions(plan.target - plan.first),
            host_positions: positions(at_once - plan.first),
            asked_positions: if is_asked { positions(plan.most - plan.target) } else { 0 },
            is_begun: false,
        };
        let pages = plan.pages()?;
        Ok(Brings { found, here: pages.len(), pages, plan: Some(try_box(plan)?), before })
    }
}
