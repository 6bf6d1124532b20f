//! Namespaces by number, for as long as something has one.
use crate::index::Namespace;
use crate::memory::{OrderedMap, OutOfMemory, Slab};

#[derive(Debug, Default)]
pub(super) struct Spaces {
    /// With how often each is held.
    names: Slab<(Namespace, usize)>,
    numbers: OrderedMap<Namespace, u32>,
}

impl Spaces {
    /// The number of a namespace, held once more: whoever enters leaves.
    pub fn enter(&mut self, name: &Namespace) -> Result<u32, OutOfMemory> {
        if let Some(&number) = self.numbers.get(name) {
            self.hold(number);
            return Ok(number);
        }
        self.names.try_reserve(1)?;
        self.numbers.try_reserve(1)?;
        let number = self.names.insert((*name, 1));
        self.numbers.insert(*name, number);
        Ok(number)
    }

    /// The number of a namespace that something has.
    pub fn find(&self, name: &Namespace) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Something more has the namespace.
    pub fn hold(&mut self, number: u32) {
        self.names[number].1 += 1;
    }

    /// Something no longer has the namespace, whose number is free when that was the last.
    pub fn leave(&mut self, number: u32) {
        let (name, held) = &mut self.names[number];
        *held -= 1;
        if *held == 0 {
            self.numbers.remove(&*name);
            self.names.remove(number);
        }
    }

    pub fn name(&self, number: u32) -> &Namespace {
        &self.names[number].0
    }

    /// All numbers are below this.
    pub fn end(&self) -> u32 {
        self.names.capacity() as u32
    }

    pub fn get(&self, number: u32) -> Option<&Namespace> {
        self.names.get(number).map(|(name, _)| name)
    }

    pub fn bytes(&self) -> usize {
        self.names.bytes() + self.numbers.bytes()
    }

    /// Checks how often each is held.
    pub fn check(&self, held: &[usize]) {
        assert_eq!(self.names.len(), self.numbers.len());
        for (number, &held) in (0..).zip(held) {
            let found = self.names.get(number);
            assert_eq!(found.map_or(0, |&(_, held)| held), held, "namespace {number}");
            if let Some((name, _)) = found {
                assert_eq!(self.find(name), Some(number));
            }
        }
    }
}
