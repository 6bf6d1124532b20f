//! One word in which readers find an array, several arrays, or just a number.
use super::array::{Header, release, retire, visible};
use super::{Array, Garbage, Link, Reader};
use crate::sync::{AtomicPtr, Ordering};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut, without_provenance_mut};

/// Lowest bits of the word, which those of an array's address leave alone.
const NUMBER: usize = 1;
const MANY: usize = 2;
const TAGS: usize = NUMBER | MANY;

const _: () = assert!(align_of::<Header>() > TAGS);

/// A place in which readers find nothing, a number below 2^31, an array, or links to arrays.
#[derive(Debug)]
pub struct Junction<T>(AtomicPtr<Header>, PhantomData<Array<T>>);

/// What a junction is to lead to.
pub enum Lead<'a, T> {
    /// Nothing.
    Nothing,
    /// A number.
    Number(u32),
    /// An array, whose handle stays with its owner.
    One(&'a mut Array<T>),
    /// The same of links.
    Many(&'a mut Array<Link<T>>),
}

/// What a junction leads to, without a look at arrays.
#[derive(Debug, Clone, Copy)]
pub enum Led {
    /// Nothing.
    Nothing,
    /// A number.
    Number(u32),
    /// An array, or links to some.
    Arrays,
}

/// The arrays that a junction leads to.
#[derive(Debug, Clone, Copy)]
pub enum Arrays<'a, T> {
    /// One; an empty one if there is none.
    One(&'a [T]),
    /// Links to some.
    Many(&'a [Link<T>]),
}

// SAFETY: readers get `&T`, and who drops the last reference drops the items.
unsafe impl<T: Send + Sync> Send for Junction<T> {}
// SAFETY: as above; the pointer is atomic.
unsafe impl<T: Send + Sync> Sync for Junction<T> {}

impl<T> Default for Junction<T> {
    fn default() -> Self {
        Self(AtomicPtr::default(), PhantomData)
    }
}

/// The tag of a word, and what it leads to if that is an array.
fn parts(word: *mut Header) -> (usize, Option<NonNull<Header>>) {
    (word.addr() & TAGS, NonNull::new(word.map_addr(|addr| addr & !TAGS)))
}

impl<T: Send + Sync> Junction<T> {
    /// Leads to something else from now on.
    #[inline(always)]
    pub fn set(&self, lead: Lead<'_, T>, garbage: &mut Garbage) {
        let before = self.0.load(Ordering::Relaxed);
        let to = match &lead {
            Lead::Nothing => null_mut(),
            Lead::Number(number) => without_provenance_mut((*number as usize) << 1 | NUMBER),
            Lead::One(array) => array.header(),
            Lead::Many(links) => links.header().map_addr(|addr| addr | MANY),
        };
        if to == before {
            return;
        }
        match lead {
            Lead::Nothing | Lead::Number(_) => {}
            Lead::One(array) => array.refer(),
            Lead::Many(links) => links.refer(),
        }
        self.0.swap(to, Ordering::AcqRel);
        // SAFETY: the reference of this place, which led there by the tag, and leads elsewhere now.
        // Nobody else changes where it leads.
        unsafe {
            match parts(before) {
                (0, Some(array)) => retire::<T>(array, garbage),
                (MANY, Some(links)) => retire::<Link<T>>(links, garbage),
                _ => {}
            }
        }
    }

    /// What it leads to.
    #[inline]
    pub fn peek(&self) -> Led {
        match self.0.load(Ordering::Relaxed).addr() {
            0 => Led::Nothing,
            word if word & NUMBER != 0 => Led::Number((word >> 1) as u32),
            _ => Led::Arrays,
        }
    }

    /// What readers may see of arrays.
    #[inline]
    pub fn read<'a>(&'a self, _: &'a Reader) -> Arrays<'a, T> {
        // SAFETY: as of `Link::read`; the tag tells of what.
        unsafe {
            match parts(self.0.load(Ordering::SeqCst)) {
                (0, Some(array)) => Arrays::One(visible(array)),
                (MANY, Some(links)) => Arrays::Many(visible(links)),
                _ => Arrays::One(&[]),
            }
        }
    }
}

impl<T> Drop for Junction<T> {
    fn drop(&mut self) {
        // SAFETY: the place's own reference. Readers borrow the place, so none came through it that
        // is still there.
        unsafe {
            match parts(self.0.load(Ordering::Relaxed)) {
                (0, Some(array)) => release::<T>(array.cast()),
                (MANY, Some(links)) => release::<Link<T>>(links.cast()),
                _ => {}
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;

    /// It leads to each thing in turn, from any other one, and nothing is freed twice or never: the
    /// arrays are there until the end.
    #[test]
    fn a_junction_leads_where_it_was_set() {
        let (junction, mut garbage) = (Junction::<AtomicU64>::default(), Garbage::default());
        let mut array = Array::shown([AtomicU64::new(7)].into_iter()).unwrap();
        let mut links = Array::shown([Link::default()].into_iter()).unwrap();
        links[0].set(Some(&mut array), &mut garbage);
        for step in 0..200_u32 {
            let Some(reader) = Reader::enter() else { return };
            let lead = match step * 7 % 11 % 4 {
                0 => Lead::Nothing,
                1 => Lead::Number(step << 20),
                2 => Lead::One(&mut array),
                _ => Lead::Many(&mut links),
            };
            junction.set(lead, &mut garbage);
            let seen = |items: &[AtomicU64]| items.first().map(|item| item.load(Ordering::Relaxed));
            let found = match junction.read(&reader) {
                Arrays::One(items) => (1, seen(items)),
                Arrays::Many(links) => (2, seen(links[0].read(&reader))),
            };
            match step * 7 % 11 % 4 {
                0 => assert!(matches!(junction.peek(), Led::Nothing) && found == (1, None)),
                1 => assert!(matches!(junction.peek(), Led::Number(at) if at == step << 20)),
                2 => assert!(matches!(junction.peek(), Led::Arrays) && found == (1, Some(7))),
                _ => assert!(matches!(junction.peek(), Led::Arrays) && found == (2, Some(7))),
            }
        }
    }
}
