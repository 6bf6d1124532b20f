//! The cache: takes the locks that it needs, in their order, and leaves everything whole.
use super::evict::Evicting;
use super::freed::{Freed, Snapshot, Stack};
use super::ledger::Ledger;
use super::nodes::NODE_LIMIT;
use super::rest::Rest;
use super::search::{Search, Step, end_change, let_others_in, stretch};
use super::spot::{Exact, Spot};
use super::tree::{Found, Tree};
use super::{
    Counters, ENTRY_LIMIT, Hit, NONE, Namespace, NewSnapshot, SnapshotInserted, SnapshotLimits,
    SnapshotStats, check,
};
use crate::error::Error;
use crate::handles::{Handles, Numbers};
use crate::ids::{HANDLE_LIMIT, PinId};
use crate::lock::{Guarded, Writing};
use crate::memory::{OutOfMemory, settle_allocator};
use crate::token::{TEXT_ID_LIMIT, all_text, bad_id};

/// Tokens of a node: what is copied at once takes a few microseconds.
pub(super) const SEGMENT: usize = 1 << 14;
/// Entries and nodes that go before others are let in: for each the processor waits for memory a
/// dozen times.
pub(super) const SLICE: usize = 8;
/// Places that are looked at before others are let in.
const LOOKS: usize = 128;

/// What takes long of an insert.
#[derive(Debug)]
pub(super) struct Ahead {
    spot: Spot,
    /// The rest of a long list.
    copy: Option<Rest>,
}

impl Ahead {
    /// Nothing.
    pub(super) const NONE: Self = Self::at(Spot::NONE);

    /// Where the list leads to, and nothing else.
    pub(super) const fn at(spot: Spot) -> Self {
        Self { spot, copy: None }
    }
}

/// The right to change what is stored.
pub(super) type Store<'a, V> = Writing<'a, Tree<V>>;

/// How far a cache can count. For an index that nobody pins anything in, and for tests, which come
/// to the ends sooner than anybody else.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct SnapshotBounds {
    /// Nodes of the tree.
    pub nodes: u32,
    /// Tokens of a node.
    pub segment: usize,
    /// Pins that are out at once. With none no block of numbers is taken.
    pub pins: u32,
    /// Where the numbers of pins come from.
    pub numbers: &'static Numbers,
    /// What the counters begin with.
    pub counters: Counters,
}

impl Default for SnapshotBounds {
    fn default() -> Self {
        Self {
            nodes: NODE_LIMIT,
            segment: SEGMENT,
            pins: HANDLE_LIMIT,
            numbers: Numbers::shared(),
            counters: Counters::default(),
        }
    }
}

/// The cache, for any number of threads.
#[derive(Debug)]
pub struct SnapshotCache<V> {
    pub(super) limits: SnapshotLimits,
    /// Tokens of a node at most.
    segment: usize,
    /// Tokens that are compared before others are let in.
    pub(super) stretch: usize,
    /// Nobody else has it yet.
    is_filled: bool,
    /// What is stored: changes to it exclude everybody, lookups go on side by side.
    pub(super) store: Guarded<Tree<V>>,
    pub(super) ledger: Guarded<Ledger<V>>,
}

impl<V> SnapshotCache<V> {
    /// An empty cache. Refused when no block of numbers is left for its pins: there are 65535.
    pub fn new(limits: SnapshotLimits) -> Result<Self, Error> {
        Self::with_bounds(limits, SnapshotBounds::default())
    }

    /// The same, and how far it can count.
    #[doc(hidden)]
    pub fn with_bounds(limits: SnapshotLimits, bounds: SnapshotBounds) -> Result<Self, Error> {
        let limits = SnapshotLimits { entries: limits.entries.min(ENTRY_LIMIT), ..limits };
        let segment = bounds.segment.max(1);
        let pins = Handles::new("pins", bounds.numbers, bounds.pins)?;
        Ok(Self {
            limits,
            segment,
            stretch: stretch(segment),
            is_filled: false,
            store: Guarded::new(Tree::new(bounds.nodes, segment)),
            ledger: Guarded::new(Ledger::new(limits, pins, bounds.counters)),
        })
    }

    /// Makes room to find so many entries, before there are any.
    pub(super) fn expect(&mut self, entries: usize) -> Result<(), OutOfMemory> {
        self.is_filled = true;
        self.store.get_mut().buckets.expect(entries)
    }

    /// They are there, or will not come.
    pub(super) fn expect_no_more(&mut self) {
        self.is_filled = false;
        self.store.get_mut().buckets.expect_no_more();
    }

    /// Stores a snapshot, in the place of the one for the same tokens if there is one. `make` gives
    /// it, when nothing can fail any more. It is called under a lock: it must not call the cache.
    pub fn insert(
        &self,
        new: NewSnapshot<'_>,
        make: impl FnOnce() -> V,
        freed: &mut Freed<V>,
    ) -> Result<SnapshotInserted, Error> {
        if !self.takes(&new)? {
            return Ok(self.refuse(make(), freed));
        }
        let ahead = match new.tokens.len() > self.segment {
            true => self.ahead(new.list())?,
            false => Ahead::NONE,
        };
        // What there is no memory for goes with this, when no lock is held any more.
        let mut make = Some(make);
        let boxed = || Snapshot::boxed(&new, || make.take().expect("a snapshot is made once")());
        Ok(self.insert_ahead(new, ahead, true, boxed, freed)?.0)
    }

    /// Whether an insert is not in vain; an error when it never can be right.
    pub(super) fn takes(&self, new: &NewSnapshot<'_>) -> Result<bool, Error> {
        let tokens = new.tokens;
        if !all_text(tokens) {
            let at = tokens.iter().position(|&id| id >= TEXT_ID_LIMIT).unwrap_or(0);
            return Err(bad_id(at, tokens[at]));
        }
        Ok(self.can_hold(new))
    }

    /// The same of tokens that are known to be text.
    pub(super) fn can_hold(&self, new: &NewSnapshot<'_>) -> bool {
        let SnapshotLimits { entries: entry_limit, bytes: byte_limit } = self.limits;
        let is_on = entry_limit > 0 && byte_limit > 0;
        is_on && !new.tokens.is_empty() && new.bytes <= byte_limit
    }

    /// An insert that is in vain.
    pub(super) fn refuse(&self, value: V, freed: &mut Freed<V>) -> SnapshotInserted {
        count(&mut self.ledger.write().counters.rejected, 1);
        freed.refuse(value);
        SnapshotInserted { stored: false, replaced: false, evicted: 0 }
    }

    /// An insert that is not, with what was made ahead; and where the entry is then. `make` is
    /// called when nothing else can fail any more. What goes for it may be left to the caller.
    pub(super) fn insert_ahead(
        &self,
        new: NewSnapshot<'_>,
        Ahead { spot, copy }: Ahead,
        evicts: bool,
        make: impl FnOnce() -> Result<Box<Snapshot<V>>, OutOfMemory>,
        freed: &mut Freed<V>,
    ) -> Result<(SnapshotInserted, Spot), Error> {
        let NewSnapshot { namespace, tokens, bytes, is_trimmable, .. } = new;
        let walk = |tree: &Tree<V>, search: &mut Search, most| {
            tree.begin(search, spot, tokens);
            tree.walk_on(search, tokens, most, |_, _, _| {})
        };
        // What is made below may be large, and who looks something up waits for it.
        if !self.is_filled {
            settle_allocator();
        }
        let (mut tree, end) = self.search_to_change(namespace, &walk);
        let plan = tree.plan(end, tokens, copy)?;
        let snapshot = tree.call_out(make)?;
        // Nothing needs memory from here on.
        let node = tree.carry_out(namespace, plan);
        let mut ledger = self.ledger.write();
        let old = tree.nodes[node].entry.replace(snapshot);
        let replaced = old.is_some();
        if let Some(old) = old {
            ledger.remove(&tree.nodes, node, old, &mut freed.ended);
        }
        ledger.add(&tree.nodes, node, bytes);
        tree.set_trimmable(node, is_trimmable);
        count(&mut ledger.counters.stored, 1);
        count(&mut ledger.counters.replaced, replaced as usize);
        let spot = Spot::new(&tree.nodes, node, tokens.len());
        tree.join_again();
        // The entry is the newest one now.
        let evicted = if evicts { self.evict(&mut tree, ledger, true, freed) } else { 0 };
        end_change(tree);
        Ok((SnapshotInserted { stored: true, replaced, evicted }, spot))
    }

    /// What takes long of an insert, made while others go on: where the list leads to, and a copy
    /// of what the tree has not of a long one. When somebody changes that part of the tree
    /// meanwhile it is of no use.
    pub(super) fn ahead(&self, list: Exact<'_>) -> Result<Ahead, Error> {
        let (tree, end) = self.follow(list);
        let known = end.map_or(0, |end| end.known());
        let spot = end.map_or(Spot::NONE, |end| Spot::new(&tree.nodes, end.node, end.tokens));
        drop(tree);
        let is_long = list.tokens.len() > self.segment;
        let copy = is_long.then(|| Rest::try_new(list.tokens, known, self.segment)).transpose()?;
        Ok(Ahead { spot, copy })
    }

    /// Finds the longest stored prefix of `tokens` and pins its snapshot. `view` looks at the value
    /// under a lock: it must not call the cache.
    pub fn find<R>(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        view: impl FnOnce(&V) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        let find =
            |tree: &Tree<V>, search: &mut Search, most| tree.find_on(search, tokens, (true, most));
        self.find_by(namespace, &find, tokens.len(), view)
    }

    /// The same, and a snapshot that is trimmable counts with the tokens that it has in common with
    /// `tokens`, also when it has others behind them.
    pub fn find_trimmable<R>(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        view: impl FnOnce(&V) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        let find = |tree: &Tree<V>, search: &mut Search, most| {
            tree.find_trimmable_on(search, tokens, most, |_| true)
        };
        self.find_by(namespace, &find, tokens.len(), view)
    }

    fn find_by<R>(
        &self,
        namespace: &Namespace,
        find: &impl Step<V>,
        token_count: usize,
        view: impl FnOnce(&V) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        // Held until the pin is there: whoever evicts or removes takes it for writing.
        let (tree, search) = self.search(namespace, find);
        let found = search.and_then(|search| search.found);
        let found = found.and_then(|found| Some((found, tree.nodes[found.node].entry.as_ref()?)));
        let mut ledger = self.ledger.write();
        if found.is_some() {
            ledger.try_reserve()?;
        }
        let counters = &mut ledger.counters;
        count(&mut counters.lookups, 1);
        count(&mut counters.lookup_tokens, token_count);
        let Some((found, entry)) = found else { return Ok(None) };
        let Found { node, tokens, common } = found;
        let is_full = [tokens, common] == [token_count; 2];
        count(&mut counters.hits, 1);
        count(&mut counters.full_hits, is_full as usize);
        count(&mut counters.hit_tokens, common);
        let pin = ledger.pin(&tree.nodes, node);
        drop(ledger);
        let Snapshot { value, bytes, next_token, .. } = &**entry;
        let (bytes, next_token) = (*bytes, *next_token);
        Ok(Some(Hit { pin, tokens, common, bytes, next_token, value: view(value) }))
    }

    /// The length of the longest stored prefix. Changes nothing.
    pub fn probe(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let find =
            |tree: &Tree<V>, search: &mut Search, most| tree.find_on(search, tokens, (false, most));
        let search = self.search(namespace, &find).1;
        search.and_then(|search| search.found).map_or(0, |found| found.tokens)
    }

    /// Ends a pin.
    pub fn release(&self, pin: PinId, freed: &mut Freed<V>) -> Result<(), Error> {
        if let Some(_over) = self.unpin(pin, freed)? {
            self.shrink(freed);
        }
        Ok(())
    }

    /// Ends a pin, and lets nothing go for the limits. If something is to, the cache may be over
    /// them, as who checks it sees, until what is returned was dropped.
    pub(super) fn unpin(
        &self,
        pin: PinId,
        freed: &mut Freed<V>,
    ) -> Result<Option<Evicting<'_, V>>, Error> {
        let tree = self.store.read();
        let mut ledger = self.ledger.write();
        let is_last = ledger.unpin(&tree.nodes, pin, &mut freed.ended)?;
        let is_over = is_last && ledger.is_over() && ledger.order.oldest().is_some();
        Ok(is_over.then(|| self.evicting_with(&mut ledger)))
    }

    /// Removes the entry of exactly these tokens; false when there is none. Readers keep what they
    /// have.
    pub fn remove(&self, namespace: &Namespace, tokens: &[u32], freed: &mut Freed<V>) -> bool {
        self.remove_exact(Exact { namespace, tokens, spot: Spot::NONE }, freed)
    }

    /// The same, from where the tokens lead to or did.
    pub(super) fn remove_exact(&self, list: Exact<'_>, freed: &mut Freed<V>) -> bool {
        let Exact { namespace, tokens, spot } = list;
        let find = |tree: &Tree<V>, search: &mut Search, most| {
            tree.begin(search, spot, tokens);
            tree.find_on(search, tokens, (false, most))
        };
        // What is freed below may lie beside much that was freed before.
        settle_allocator();
        let (mut tree, search) = self.search_to_change(namespace, &find);
        let Some(node) = tree.entry_at(&search, tokens.len()) else { return false };
        let mut ledger = self.ledger.write();
        let mut work = SLICE;
        remove(&mut tree, &mut ledger, node, &mut work, &mut freed.ended);
        count(&mut ledger.counters.removed, 1);
        tree.tighten(&mut ledger.order);
        drop(ledger);
        tree.join_again();
        end_pruning(tree, work);
        true
    }

    /// Removes every entry. Readers keep what they have.
    pub fn clear(&self, freed: &mut Freed<V>) {
        let mut tree = self.change();
        self.remove_pinned(&mut tree, freed);
        let mut ledger = self.ledger.write();
        let entries = ledger.entries;
        let empty = tree.emptied();
        let mut old = std::mem::replace(&mut *tree, empty);
        ledger.remove_all(&mut old.nodes);
        count(&mut ledger.counters.removed, entries);
        // The old tree takes longest, and nobody has to wait for it.
        drop((ledger, tree));
        freed.push_all(old);
    }

    /// Removes the entries that are pinned when it comes to them, and lets others in after every
    /// few. Their nodes stay: all go together.
    fn remove_pinned(&self, tree: &mut Store<'_, V>, freed: &mut Freed<V>) {
        let mut at = 0;
        loop {
            let mut ledger = self.ledger.write();
            let end = ledger.readers.capacity().min(at + LOOKS);
            for reader in at..end {
                let node = ledger.readers.get(reader as u32).map_or(NONE, |reader| reader.node);
                if node != NONE {
                    take_entry(tree, &mut ledger, node, &mut freed.ended);
                    tree.prune_later(node);
                    count(&mut ledger.counters.removed, 1);
                }
            }
            at = end;
            if ledger.pinned == 0 || at == ledger.readers.capacity() {
                return;
            }
            drop(ledger);
            let_others_in(tree);
        }
    }

    /// What the cache holds and counted, at one moment.
    pub fn stats(&self) -> SnapshotStats {
        let tree = self.store.read();
        let ledger = self.ledger.read();
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        SnapshotStats {
            entries: ledger.entries,
            pinned_entries: ledger.pinned,
            entry_bytes: bytes(ledger.bytes - ledger.detached_bytes),
            detached: ledger.detached(),
            detached_bytes: bytes(ledger.detached_bytes),
            pins: ledger.pins.out(),
            nodes: tree.nodes.len() - tree.roots.len(),
            namespaces: tree.roots.len(),
            index_bytes: size_of::<Self>() + tree.bytes() + ledger.index_bytes(),
            counters: ledger.counters,
        }
    }

    /// Checks every invariant; names the first that is broken.
    pub fn check(&self) -> Result<(), Error> {
        let tree = self.store.read();
        let ledger = self.ledger.read();
        check::check(&tree, &ledger)
    }
}

/// Counts, up to where a counter ends: what an engine sees there is wrong, and harms nobody.
pub(super) fn count(counter: &mut u64, more: usize) {
    *counter = counter.saturating_add(more as u64);
}

/// Ends a change after which something of a long row may be left, which goes first.
pub(super) fn end_pruning<V>(mut tree: Store<'_, V>, mut work: usize) {
    while tree.prune_again(&mut work) {
        let_others_in(&mut tree);
        work = SLICE;
    }
    end_change(tree);
}

pub(super) fn remove<V>(
    tree: &mut Tree<V>,
    ledger: &mut Ledger<V>,
    node: u32,
    work: &mut usize,
    freed: &mut Stack<V>,
) {
    let steps = take_entry(tree, ledger, node, freed);
    *work = work.saturating_sub(steps);
    tree.prune(node, work);
}

/// How many nodes it changed for what is trimmable.
fn take_entry<V>(
    tree: &mut Tree<V>,
    ledger: &mut Ledger<V>,
    node: u32,
    freed: &mut Stack<V>,
) -> usize {
    let entry = tree.nodes[node].entry.take().expect("an entry that is there");
    ledger.remove(&tree.nodes, node, entry, freed);
    tree.set_trimmable(node, false)
}
