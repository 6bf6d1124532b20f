//! Namespaces by number, and what they are called in events.
use crate::error::{Error, text};
use crate::index::Namespace;
use crate::memory::{OrderedMap, OutOfMemory, Slab, TryGrow};
use crate::token::PageDigest;

/// Bytes of a name at most.
pub(crate) const NAME_LIMIT: usize = 1024;

/// A namespace, and the texts that stand for its parts on the wire.
#[derive(Debug)]
pub(super) struct Space {
    name: Namespace,
    digest: PageDigest,
    /// Pages that are held in it.
    pages: usize,
    /// Of which was told.
    told: usize,
    lora_name: Option<Box<[u8]>>,
    cache_salt: Option<Box<[u8]>>,
}

/// A text that was registered, or one made of a number or a digest.
pub(super) enum SpaceLabel<'a> {
    Text(&'a str),
    Number(u64),
    Digest(PageDigest),
}

impl Space {
    /// What stands before the first page.
    pub fn digest(&self) -> PageDigest {
        self.digest
    }

    /// The number of its LoRA adapter.
    pub fn lora_id(&self) -> Option<u64> {
        self.name.lora
    }

    /// The name of its LoRA adapter: what was registered, or the number. No adapter, no name.
    pub fn lora_name(&self) -> Option<SpaceLabel<'_>> {
        let lora = self.name.lora?;
        Some(self.lora_name.as_deref().map_or(SpaceLabel::Number(lora), registered))
    }

    /// Bytes of the name that its LoRA adapter was given.
    pub fn lora_name_bytes(&self) -> usize {
        self.lora_name.as_deref().map_or(0, <[u8]>::len)
    }

    /// What keeps its prefixes apart from those of the same adapter: what was registered, or the
    /// digest of a namespace with more than an adapter.
    pub fn cache_salt(&self) -> Option<SpaceLabel<'_>> {
        let is_plain = Namespace { lora: self.name.lora, ..Namespace::default() } == self.name;
        match self.cache_salt.as_deref() {
            Some([]) => None,
            Some(text) => Some(registered(text)),
            None => (!is_plain).then_some(SpaceLabel::Digest(self.digest)),
        }
    }

    fn is_registered(&self) -> bool {
        self.lora_name.is_some() || self.cache_salt.is_some()
    }
}

fn registered(text: &[u8]) -> SpaceLabel<'_> {
    SpaceLabel::Text(std::str::from_utf8(text).expect("it was a str"))
}

/// Refuses a name that is too long; copies it.
fn owned(text: Option<&str>, argument: &str) -> Result<Option<Box<[u8]>>, Error> {
    let Some(text) = text else { return Ok(None) };
    if text.len() > NAME_LIMIT {
        let bytes = text.len();
        return Err(Error::argument(text!("{argument} has {bytes} bytes of at most {NAME_LIMIT}")));
    }
    let mut copy = Vec::new();
    copy.try_reserve_exact(text.len()).map_err(OutOfMemory::from)?;
    copy.try_extend_from_slice(text.as_bytes())?;
    Ok(Some(copy.into_boxed_slice()))
}

/// Namespaces that have pages, or were given names.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    spaces: Slab<Space>,
    numbers: OrderedMap<Namespace, u32>,
    /// Pages of all.
    pages: usize,
    /// Pages of all of which was told.
    told: usize,
}

impl Spaces {
    /// The number of a namespace, known or not.
    pub fn number(&mut self, name: &Namespace) -> Result<u32, OutOfMemory> {
        if let Some(&number) = self.numbers.get(name) {
            return Ok(number);
        }
        self.spaces.try_reserve(1)?;
        self.numbers.try_reserve(1)?;
        let space = Space {
            name: *name,
            digest: name.digest(),
            pages: 0,
            told: 0,
            lora_name: None,
            cache_salt: None,
        };
        let number = self.spaces.insert(space);
        self.numbers.insert(*name, number);
        Ok(number)
    }

    /// The number of a namespace that is known.
    pub fn find(&self, name: &Namespace) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Gives a namespace names; none is what is made of numbers.
    pub fn register(
        &mut self,
        name: &Namespace,
        lora_name: Option<&str>,
        cache_salt: Option<&str>,
    ) -> Result<(), Error> {
        if lora_name.is_some() && name.lora.is_none() {
            return Err(Error::argument("lora_name: the namespace has no LoRA adapter"));
        }
        let texts = (owned(lora_name, "lora_name")?, owned(cache_salt, "cache_salt")?);
        let number = self.number(name)?;
        let space = &mut self.spaces[number];
        (space.lora_name, space.cache_salt) = texts;
        self.drop_unused(number);
        Ok(())
    }

    /// A page came into a namespace.
    pub fn add_page(&mut self, number: u32) {
        self.spaces[number].pages += 1;
        self.pages += 1;
    }

    /// A page left.
    pub fn take_page(&mut self, number: u32) {
        self.spaces[number].pages -= 1;
        self.pages -= 1;
        self.drop_unused(number);
    }

    fn drop_unused(&mut self, number: u32) {
        let space = &self.spaces[number];
        if space.pages == 0 && !space.is_registered() {
            let space = self.spaces.remove(number);
            self.numbers.remove(&space.name);
        }
    }

    pub fn get(&self, number: u32) -> &Space {
        &self.spaces[number]
    }

    /// Of a page more was told.
    pub fn add_told(&mut self, number: u32) {
        self.spaces[number].told += 1;
        self.told += 1;
    }

    /// What was told of so many pages counts no longer.
    pub fn take_told(&mut self, number: u32, pages: usize) {
        self.spaces[number].told -= pages;
        self.told -= pages;
    }

    /// Pages of a namespace of which was told, and of all.
    pub fn told(&self, number: u32) -> (usize, usize) {
        (self.spaces[number].told, self.told)
    }

    /// Pages of all namespaces.
    pub fn all_pages(&self) -> usize {
        self.pages
    }

    /// Pages of all namespaces of which was told.
    pub fn all_told(&self) -> usize {
        self.told
    }
}
