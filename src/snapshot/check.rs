//! Proves the invariants one by one, by a recount.
use super::NONE;
use super::ledger::Ledger;
use super::tree::Tree;
use crate::error::{Error, text};
use crate::memory::try_filled;
use std::sync::atomic::Ordering::Relaxed;

fn broken<T>(invariant: &str, what: impl std::fmt::Display) -> Result<T, Error> {
    Err(Error::Corrupt(text!("{invariant}: {what}")))
}

pub(super) fn check<V>(tree: &Tree<V>, ledger: &Ledger<V>) -> Result<(), Error> {
    check_tree(tree)?;
    check_lists(tree, ledger)?;
    check_pins(tree, ledger)?;
    check_totals(tree, ledger)
}

fn check_tree<V>(tree: &Tree<V>) -> Result<(), Error> {
    let (mut roots, mut label_bytes, mut nodes) = (0, 0, 0);
    for (at, node) in tree.nodes.iter() {
        nodes += 1;
        label_bytes += node.label.bytes();
        let children = check_children(tree, at)?;
        let (is_root, has_entry) = (node.label.is_empty(), node.entry.is_some());
        let waits = node.link.is_in() && !has_entry;
        let enough = match is_root {
            true => !has_entry && children > 0,
            false => has_entry || children > 1 || waits || tree.is_in_a_row(at),
        };
        if !enough {
            return broken("node_needed", format_args!("node {at}"));
        }
        if waits && (is_root || children > 1) {
            return broken("unjoined", format_args!("node {at} has {children} children"));
        }
        if is_root {
            roots += 1;
            if node.parent != NONE {
                return broken("root_place", format_args!("node {at}"));
            }
            continue;
        }
        // Finds the first child with this token: it must be this one.
        let first = node.label.first().unwrap_or(NONE);
        let begins = |other: u32| {
            let other = &tree.nodes[other];
            other.parent == node.parent && other.label.first() == Some(first)
        };
        let hash = tree.child_hash(node.parent, first);
        if tree.buckets.find(&tree.nodes, hash, begins) != Some(at) {
            return broken("child_table", format_args!("node {at}"));
        }
    }
    for (_, root) in tree.roots.iter() {
        if tree.nodes.get(root).is_none_or(|node| !node.label.is_empty()) {
            return broken("root_place", format_args!("node {root}"));
        }
    }
    if nodes != tree.nodes.len() || tree.buckets.len() + roots != nodes || tree.roots.len() != roots
    {
        return broken("node_count", format_args!("{roots} roots"));
    }
    if label_bytes != tree.label_bytes {
        return broken("label_bytes", format_args!("{label_bytes}, not {}", tree.label_bytes));
    }
    Ok(())
}

/// The children of a node, of which those that lead to a trimmable entry come first; how many.
fn check_children<V>(tree: &Tree<V>, at: u32) -> Result<usize, Error> {
    let nodes = &tree.nodes;
    let (first, is_trimmable) = (nodes[at].first_child, nodes.is_trimmable(at));
    let mut before = if first == NONE { NONE } else { nodes[first].before };
    let (last, mut children, mut leads) = (before, 0, true);
    for child in nodes.children(at).take(nodes.len()) {
        if nodes[child].parent != at || nodes[child].before != before {
            return broken("sibling_link", format_args!("node {child}, a child of {at}"));
        }
        if nodes.leads(child) && !leads {
            return broken("trimmable", format_args!("node {child}, a child of {at}, comes late"));
        }
        leads = nodes.leads(child);
        before = child;
        children += 1;
    }
    if before != last {
        return broken("sibling_link", format_args!("the last child of {at}"));
    }
    let leads = is_trimmable || first != NONE && nodes.leads(first);
    if nodes.leads(at) != leads || is_trimmable && nodes[at].entry.is_none() {
        return broken("trimmable", format_args!("node {at}"));
    }
    Ok(children)
}

/// The order of use and the list of what is still to be joined: every node that is in a list is in
/// the right one.
fn check_lists<V>(tree: &Tree<V>, ledger: &Ledger<V>) -> Result<(), Error> {
    let nodes = &tree.nodes;
    if !ledger.order.is_sound(nodes)
        || !tree.unjoined.is_sound(nodes)
        || !tree.dying.is_sound(nodes)
    {
        return broken("order_links", "a link without an answer");
    }
    for (at, node) in nodes.iter() {
        let in_use = node.reader.load(Relaxed) != NONE;
        if node.entry.is_some() && node.link.is_in() == in_use || node.entry.is_none() && in_use {
            return broken("order_members", format_args!("node {at}"));
        }
    }
    let in_order = ledger.order.iter(nodes);
    let waiting = tree.unjoined.iter(nodes).chain(tree.dying.iter(nodes));
    if in_order.chain(waiting).any(|at| !nodes[at].link.is_in()) {
        return broken("order_members", "a node that says it is in no list");
    }
    let in_order = ledger.order.iter(nodes).filter(|&at| nodes[at].entry.is_some()).count();
    let is_dying = |&at: &u32| nodes[at].first_child == NONE;
    let unjoined = tree.unjoined.iter(nodes).filter(|at| !is_dying(at));
    let waiting = unjoined.chain(tree.dying.iter(nodes).filter(is_dying));
    let waiting = waiting.filter(|&at| nodes[at].entry.is_none()).count();
    let linked = nodes.iter().filter(|(_, node)| node.link.is_in()).count();
    if in_order + waiting != linked || in_order != ledger.entries - ledger.pinned {
        return broken("order_count", format_args!("{in_order} in use, {waiting} to be joined"));
    }
    // What was inserted last may be over the limits as long as everything else is pinned; and more
    // is over them while calls are letting it go.
    if ledger.is_over() && in_order > 1 && ledger.evicting == 0 {
        return broken("limits", format_args!("{in_order} entries could go"));
    }
    Ok(())
}

fn check_pins<V>(tree: &Tree<V>, ledger: &Ledger<V>) -> Result<(), Error> {
    let most = ledger.pins.iter().max().map_or(0, |most| most as usize + 1);
    let mut pins = try_filled(0u32, most)?;
    ledger.pins.iter().for_each(|reader| pins[reader as usize] += 1);
    if ledger.pins.iter().count() != ledger.pins.out() {
        return broken("pin_count", format_args!("{} are out", ledger.pins.out()));
    }
    let (mut readers, mut detached, mut bytes) = (0, 0, 0);
    for (at, &pins) in (0..).zip(&pins).filter(|(_, pins)| **pins > 0) {
        let reader = &ledger.readers[at];
        readers += 1;
        if reader.pins != pins {
            return broken("reader_pins", format_args!("reader {at}"));
        }
        if let Some(kept) = &reader.kept {
            (detached, bytes) = (detached + 1, bytes + kept.bytes as u128);
        }
        let node = tree.nodes.get(reader.node);
        let leads_back = node.is_some_and(|node| node.reader.load(Relaxed) == at);
        if leads_back == reader.kept.is_some() || reader.kept.is_some() != (reader.node == NONE) {
            return broken("reader_node", format_args!("reader {at}"));
        }
    }
    if readers != ledger.readers.len() || detached != ledger.detached() {
        return broken("reader_count", format_args!("{readers}, {detached} of them detached"));
    }
    if bytes != ledger.detached_bytes {
        return broken("snapshot_bytes", format_args!("{bytes} detached"));
    }
    Ok(())
}

fn check_totals<V>(tree: &Tree<V>, ledger: &Ledger<V>) -> Result<(), Error> {
    let nodes = &tree.nodes;
    let entries = nodes.entries().count();
    if entries != ledger.entries {
        return broken("entry_count", format_args!("{entries}, not {}", ledger.entries));
    }
    let stored: u128 = nodes.entries().map(|(_, entry)| entry.bytes as u128).sum();
    if stored + ledger.detached_bytes != ledger.bytes {
        return broken("snapshot_bytes", format_args!("{stored} of entries"));
    }
    let pinned = nodes.iter().filter(|(_, node)| node.reader.load(Relaxed) != NONE).count();
    if pinned != ledger.pinned {
        return broken("pinned_count", format_args!("{pinned}, not {}", ledger.pinned));
    }
    Ok(())
}
