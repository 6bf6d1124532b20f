//! Compares everything that can be seen of the library with the model.
use super::abi::{Library, Status, sized};
use super::naive::{Naive, Page, Sequence, Wrong, require};
use super::namespaces::namespace;
use super::published::Label;
use super::spaces::Space;
use radixkv::capi::{rkv_namespace, rkv_node_info, rkv_sequence_info};
use std::collections::BTreeMap;

/// Which node id stands for which label. Both are used once only: a pair once seen holds for ever.
#[derive(Default)]
pub struct Names {
    ids: BTreeMap<Label, u64>,
    labels: BTreeMap<u64, Label>,
    /// In the order of their appearance.
    pub known: Vec<Label>,
}

impl Names {
    pub fn id(&self, label: Label) -> u64 {
        self.ids[&label]
    }

    pub fn knows(&self, label: Label) -> bool {
        self.ids.contains_key(&label)
    }

    /// The library gave `id` where the model has `label`.
    pub fn bind(&mut self, label: Label, id: u64) -> Result<(), Wrong> {
        require!(id != 0, "no node id is given for a node");
        match (self.ids.get(&label), self.labels.get(&id)) {
            (None, None) => {
                self.ids.insert(label, id);
                self.labels.insert(id, label);
                self.known.push(label);
                Ok(())
            }
            (Some(&known), _) if known == id => Ok(()),
            (Some(&known), _) => Err(format!("node {label} has id {id:#x}, it was {known:#x}")),
            (None, Some(&other)) => {
                Err(format!("new node {label} has id {id:#x}, which stood for node {other}"))
            }
        }
    }

    pub fn bind_option(&mut self, label: Option<Label>, id: u64) -> Result<(), Wrong> {
        match label {
            Some(label) => self.bind(label, id),
            None => {
                require!(id == 0, "a node id {id:#x} is given where there is no node");
                Ok(())
            }
        }
    }
}

fn fail(what: &str) -> impl Fn(Status) -> Wrong + '_ {
    move |status| format!("{what} returned {status:?}: {}", Library::last_message())
}

/// Equality of two lists of named values, in one message.
macro_rules! equal {
    ($what:expr, $($name:ident: $ours:expr, $theirs:expr;)+) => {
        $(if $ours as u64 != $theirs as u64 {
            return Err(format!(
                "{}: {} is {} in the library, {} in the model",
                $what, stringify!($name), $theirs, $ours
            ));
        })+
    };
}
pub(crate) use equal;

/// Everything at once.
pub fn compare(
    library: &Library,
    model: &Naive,
    names: &mut Names,
    sequences: &[u64],
) -> Result<(), Wrong> {
    library.check().map_err(fail("rkv_cache_check"))?;
    library.audit().map_err(fail("rkv_page_table_check"))?;
    compare_table(library, model)?;
    for (index, sequence) in model.live_sequences() {
        let state = library.query(sequences[index]).map_err(fail("rkv_sequence_read_info"))?;
        compare_sequence(model, library, names, sequence, &state)?;
        require!(state.sequence == sequences[index], "a sequence has another's id");
    }
    compare_tree(library, model, names)?;
    compare_counters(library, model)
}

fn compare_table(library: &Library, model: &Naive) -> Result<(), Wrong> {
    let stats = library.table_stats().map_err(fail("rkv_page_table_read_stats"))?;
    let free_slots = model.rows.iter().filter(|row| row.is_none()).count();
    equal!("page table",
        page_size: model.config.page_size, stats.page_size;
        total: model.config.page_count - 1, stats.total_page_count;
        free: model.free(), stats.free_page_count;
        cached: model.cache.pages.len(), stats.cached_page_count;
        private: model.private(), stats.private_page_count;
        reclaimable: model.cache.reclaimable(), stats.reclaimable_page_count;
        slots: model.config.slot_count, stats.slot_count;
        free_slots: free_slots, stats.free_slot_count;
    );
    for (slot, row) in model.rows.iter().enumerate() {
        let Some(row) = row else { continue };
        let pages = library.row(slot as u32, 0).map_err(fail("rkv_page_table_read_row"))?;
        require!(pages == row.pages, "row {slot} is {pages:?}, in the model {:?}", row.pages);
    }
    let page = model.cache.pages.len() + model.free();
    let page = (page % model.config.page_count) as u32;
    let contains = library.contains_page(page).map_err(fail("rkv_cache_contains_page"))?;
    let cached = model.pages[page as usize] == Page::Cached;
    require!(contains == cached, "contains_page({page}) is {contains}");
    Ok(())
}

pub fn compare_sequence(
    model: &Naive,
    library: &Library,
    names: &mut Names,
    sequence: &Sequence,
    state: &rkv_sequence_info,
) -> Result<(), Wrong> {
    let row = &model.row(sequence.slot).expect("a sequence has a row").pages;
    let (source, positions) = sequence.copy.map_or((0, 0), |copy| (copy.source, copy.positions));
    let inherited = if sequence.inherited { sequence.cached_positions } else { 0 };
    let target = if positions > 0 { row[sequence.shared] } else { 0 };
    let copy = library.copy_of(state.sequence);
    let copy = copy.map_err(|status| format!("rkv_sequence_read_copies: {status:?}"))?;
    equal!("sequence",
        slot: sequence.slot, state.slot;
        positions: sequence.tokens.positions(), state.position_count;
        cached_positions: sequence.cached_positions, state.cached_position_count;
        cached_tokens: sequence.cached_tokens, state.cached_token_count;
        inherited: inherited, state.inherited_position_count;
        pages: row.len(), state.page_count;
        shared_pages: sequence.shared, state.shared_page_count;
        copies: usize::from(positions > 0), state.copy_count;
        copy_positions: positions, copy.position_count;
        copy_source: source, copy.source_page;
        copy_target: target, copy.target_page;
    );
    names.bind_option(sequence.node, state.node)
}

fn compare_counters(library: &Library, model: &Naive) -> Result<(), Wrong> {
    let stats = library.stats().map_err(fail("rkv_cache_read_stats"))?;
    let nodes = model.cache.node_count();
    let counters = &model.counters;
    equal!("cache",
        cached: model.cache.pages.len(), stats.cached_page_count;
        reclaimable: model.cache.reclaimable(), stats.reclaimable_page_count;
        nodes: nodes, stats.node_count;
        prefixes: model.cache.prefix_count(), stats.prefix_count;
        namespaces: found_roots(model), stats.namespace_count;
        sequences: model.live_sequences().count(), stats.sequence_count;
        images: model.image_count(), stats.image_count;
        lookups: counters.lookups, stats.lookup_count;
        lookup_positions: counters.lookup_positions, stats.lookup_position_count;
        hit_positions: counters.hit_positions, stats.hit_position_count;
        partial_hits: counters.partial_hit_positions, stats.partial_hit_position_count;
        inserted: counters.inserted, stats.inserted_page_count;
        duplicates: counters.duplicates, stats.duplicate_page_count;
        evicted: counters.evicted, stats.evicted_page_count;
        retained_sequences: model.retained.len(), stats.retained_sequence_count;
        retained_pages: model.kept_pages(), stats.retained_page_count;
        displaced: counters.displaced, stats.displaced_sequence_count;
        inherits: counters.inherits, stats.inherit_count;
        inherited_positions: counters.inherited_positions, stats.inherited_position_count;
    );
    Ok(())
}

/// Roots that namespaces lead to.
fn found_roots(model: &Naive) -> usize {
    model.cache.roots.keys().filter(|&&space| model.lives.is_found(space)).count()
}

fn compare_tree(library: &Library, model: &Naive, names: &mut Names) -> Result<(), Wrong> {
    let info = |id| library.node_info(id).map_err(fail("rkv_node_read_info"));
    let listed = library.namespaces().map_err(fail("rkv_cache_read_namespaces"))?;
    equal!("the list", namespaces: found_roots(model), listed.len(););
    let mut times = Vec::new();
    for (&ns, root) in &model.cache.roots {
        if !names.knows(root.label) {
            names.bind(root.label, find_root(library, model, names, ns)?)?;
        }
        let id = names.id(root.label);
        let fields = |space: &rkv_namespace| {
            (space.flags, space.lora_id, space.epoch, space.image_digest, space.salt)
        };
        let wanted = fields(&namespace(ns.name).unwrap_or_else(sized));
        let is_it = |(space, root): &&(_, u64)| fields(space) == wanted && *root == id;
        let listed = listed.iter().filter(is_it).count();
        let found = usize::from(model.lives.is_found(ns));
        require!(listed == found, "{ns:?} is {listed} times in the list, not {found} times");
        let seen = info(id)?;
        let firsts: Vec<usize> = model.cache.after(ns, &[]).collect();
        equal!(format!("root of {ns:?}"),
            parent: 0, seen.parent;
            positions: 0, seen.position_count;
            pages: 0, seen.page_count;
            end: 0, seen.end_position;
            locks: root.locks + model.cache.locked(firsts.iter().copied()), seen.lock_count;
            children: firsts.len(), seen.child_count;
        );
        let children = library.node_children(id, firsts.len());
        let children = children.map_err(fail("rkv_node_read_children"))?;
        let mut open: Vec<(u64, u64, Vec<usize>)> =
            children.into_iter().map(|child| (id, child, firsts.clone())).collect();
        while let Some((parent, id, siblings)) = open.pop() {
            let seen = info(id)?;
            require!(seen.parent == parent, "node {id:#x} has another parent than its place");
            let (end, below) = compare_node(library, model, names, id, &seen, &siblings)?;
            times.push((model.cache.pages[end].used, seen.last_access));
            let children = library.node_children(id, below.len());
            let children = children.map_err(fail("rkv_node_read_children"))?;
            open.extend(children.into_iter().map(|child| (id, child, below.clone())));
        }
    }
    let nodes = model.cache.node_count();
    require!(times.len() == nodes, "{} nodes are found, {nodes} in the model", times.len());
    times.sort();
    for pair in times.windows(2) {
        let (ours, theirs) = (pair[0].0.cmp(&pair[1].0), pair[0].1.cmp(&pair[1].1));
        require!(ours == theirs, "last_access of two nodes is {theirs:?}, in the model {ours:?}");
    }
    Ok(())
}

/// Climbs to a root from some node of the namespace whose id is known.
fn find_root(library: &Library, model: &Naive, names: &Names, ns: Space) -> Result<u64, Wrong> {
    let marks = model.cache.pages.iter().filter(|page| page.ns == ns);
    let marks = marks.filter_map(|page| page.mark.as_ref());
    let known = marks.map(|mark| mark.label).find(|&label| names.knows(label));
    root_above(library, names.id(known.ok_or("no node of a new namespace is known")?))
}

/// The root above a node.
pub fn root_above(library: &Library, mut id: u64) -> Result<u64, Wrong> {
    loop {
        let info = library.node_info(id).map_err(fail("rkv_node_read_info"))?;
        if info.parent == 0 {
            return Ok(id);
        }
        id = info.parent;
    }
}

/// Compares a node, which must be one of the siblings of which the first pages are given. Returns
/// its last page, and the first pages of its children.
fn compare_node(
    library: &Library,
    model: &Naive,
    names: &mut Names,
    id: u64,
    seen: &rkv_node_info,
    siblings: &[usize],
) -> Result<(usize, Vec<usize>), Wrong> {
    let cache = &model.cache;
    let pages = library.node_pages(id, seen.page_count as usize);
    let pages = pages.map_err(fail("rkv_node_read_pages"))?;
    let first = pages.first().and_then(|&page| cache.by_page(page));
    let first = first.filter(|first| siblings.contains(first));
    let first = first.ok_or(format!("node {id:#x} with pages {pages:?} is not in its place"))?;
    let end = cache.node_end(first);
    let segment = cache.segment(end);
    let ours: Vec<u32> = segment.iter().map(|&page| cache.pages[page].page).collect();
    require!(pages == ours, "node {id:#x} has pages {pages:?}, in the model {ours:?}");
    names.bind(cache.label(end), id)?;
    let below: Vec<usize> = cache.children(end).collect();
    equal!(format!("node {id:#x} with pages {pages:?}"),
        locks: cache.locks_on(end), seen.lock_count;
        positions: ours.len() * model.config.page_size, seen.position_count;
        end: cache.pages[end].prefix.len(), seen.end_position;
        children: below.len(), seen.child_count;
        hits: cache.pages[end].hits, seen.hit_count;
    );
    Ok((end, below))
}
