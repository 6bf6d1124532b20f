//! The row of a request in one group of layers.
use pyo3::prelude::*;

use crate::c::*;
use crate::status::refused;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Full,
    Window(usize),
    State,
}

impl Kind {
    /// The first page that a token at a position, or one behind it, needs.
    pub fn first_needed(self, position: usize, page_size: usize) -> usize {
        match self {
            Kind::Full => 0,
            Kind::Window(window) => (position + 1).saturating_sub(window) / page_size,
            // The state after the token before.
            Kind::State => position.saturating_sub(1) / page_size,
        }
    }
}

/// A row of one group.
pub struct Lane {
    /// Its number in the page table.
    pub number: u32,
    pub kind: Kind,
    /// 0 where it has none: a window has passed, or no step has ended there.
    pub pages: Vec<u32>,
    /// Which of them are the row's alone.
    pub own: Vec<bool>,
    /// What is published. Of a group of states these are the pages of which a step has left one
    /// at the end of a page; of others it is empty, and all are.
    pub left: Vec<u32>,
    /// Pages before this one were let go of.
    pub slid: usize,
}

impl Lane {
    fn new(number: u32, kind: Kind) -> Self {
        let (pages, own, left) = Default::default();
        Lane { number, kind, pages, own, left, slid: 0 }
    }

    pub fn grown_by(&self, page_count: usize) -> usize {
        if self.kind == Kind::State { page_count.min(1) } else { page_count }
    }

    pub fn resize(&mut self, page_count: usize) {
        self.pages.resize(page_count, 0);
        self.own.resize(page_count, false);
        if self.kind == Kind::State {
            self.left.resize(page_count, 0);
        }
    }

    pub fn published(&self) -> &[u32] {
        if self.kind == Kind::State { &self.left } else { &self.pages }
    }

    /// Takes the pages [first, end) that are the row's alone.
    pub fn drain_own(&mut self, first: usize, end: usize, into: &mut Vec<u32>) {
        for at in first..end {
            if std::mem::take(&mut self.own[at]) {
                into.push(self.pages[at]);
            }
            self.pages[at] = 0;
        }
        if self.kind == Kind::State {
            self.left[first..end].fill(0);
        }
    }
}

/// Empty rows of the groups of a page table, in an engine's order of them.
pub fn lanes_of(py: Python<'_>, groups: &[rkv_group_config], order: &[u32]) -> PyResult<Vec<Lane>> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..groups.len() as u32) {
        let message = format!("order: each of {} groups is needed once", groups.len());
        return Err(refused(py, RKV_STATUS_INVALID_ARGUMENT, &message));
    }
    let lane = |&number: &u32| {
        let group = &groups[number as usize];
        let kind = match group.kind {
            RKV_GROUP_FULL => Kind::Full,
            RKV_GROUP_WINDOW if group.sinks == 0 => Kind::Window(group.window as usize),
            RKV_GROUP_STATE if group.draft_state_count == 0 => Kind::State,
            _ => {
                let message = "group_row: chunks, sinks and draft states are not covered";
                return Err(refused(py, RKV_STATUS_UNSUPPORTED, message));
            }
        };
        if group.pool != 0 {
            let message = "group_row: all groups have to draw from pool 0";
            return Err(refused(py, RKV_STATUS_UNSUPPORTED, message));
        }
        Ok(Lane::new(number, kind))
    };
    order.iter().map(lane).collect()
}
