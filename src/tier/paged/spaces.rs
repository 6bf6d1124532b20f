//! Namespaces by number, for as long as something has one.
use crate::index::Namespace;
use crate::memory::{OrderedMap, OutOfMemory, Slab};

/// Namespaces beyond which those that nothing has are looked for.
const SWEEP: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Spaces {
    names: Slab<Namespace>,
    numbers: OrderedMap<Namespace, u32>,
    /// After the last sweep.
    kept: usize,
}

impl Spaces {
    /// The number of a namespace.
    pub fn number(&mut self, name: &Namespace) -> Result<u32, OutOfMemory> {
        if let Some(&number) = self.numbers.get(name) {
            return Ok(number);
        }
        self.names.try_reserve(1)?;
        self.numbers.try_reserve(1)?;
        let number = self.names.insert(*name);
        self.numbers.insert(*name, number);
        Ok(number)
    }

    pub fn name(&self, number: u32) -> &Namespace {
        &self.names[number]
    }

    /// All numbers are below this.
    pub fn end(&self) -> u32 {
        self.names.capacity() as u32
    }

    pub fn get(&self, number: u32) -> Option<&Namespace> {
        self.names.get(number)
    }

    /// Whether those that nothing has are worth looking for.
    pub fn is_due(&self) -> bool {
        self.names.len() > 2 * self.kept + SWEEP
    }

    /// Drops those that are not in use.
    pub fn sweep(&mut self, is_used: impl Fn(u32) -> bool) {
        for number in 0..self.end() {
            if self.names.get(number).is_some() && !is_used(number) {
                let name = self.names.remove(number);
                self.numbers.remove(&name);
            }
        }
        self.kept = self.names.len();
    }

    pub fn bytes(&self) -> usize {
        self.names.bytes() + self.numbers.bytes()
    }
}
