//! What namespaces lead to, from one clear to the next.
use super::namespaces::{NAMESPACE_COUNT, namespace_of};

/// What a namespace leads to between two clears; or what a sequence of before a clear fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Space {
    pub name: u8,
    /// No two spaces of a name have the same.
    pub life: u64,
}

/// Which spaces the names lead to.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// By name.
    now: [u64; NAMESPACE_COUNT as usize],
    latest: u64,
    clears: usize,
}

impl Lives {
    /// Clears so far.
    pub fn clears(&self) -> usize {
        self.clears
    }

    /// What a namespace leads to now.
    pub fn space(&self, ns: u8) -> Space {
        let name = namespace_of(ns);
        Space { name, life: self.now[name as usize] }
    }

    /// Whether the name of a space leads to it.
    pub fn is_found(&self, space: Space) -> bool {
        self.now[space.name as usize] == space.life
    }

    /// A space to which its name does not lead.
    pub fn hidden(&mut self, name: u8) -> Space {
        self.latest += 1;
        Space { name, life: self.latest }
    }

    /// Lets some names lead to something new. Returns what they led to.
    pub fn clear(&mut self, covers: impl Fn(u8) -> bool) -> Vec<Space> {
        self.clears += 1;
        let names = (0..NAMESPACE_COUNT).filter(|&name| name == namespace_of(name) && covers(name));
        let clear = |name| {
            let before = self.space(name);
            self.now[name as usize] = self.hidden(name).life;
            before
        };
        names.map(clear).collect()
    }
}
