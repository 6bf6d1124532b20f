//! Proves the invariants one by one, by a recount.
use super::NONE;
use super::cache::Store;
use super::ledger::Ledger;
use super::tree::Tree;
use crate::error::{Message, text};
use std::collections::BTreeMap;

fn broken<T>(invariant: &str, what: impl std::fmt::Display) -> Result<T, Message> {
    Err(text!("{invariant}: {what}"))
}

pub(super) fn check<V>(store: &Store<V>, ledger: &Ledger<V>) -> Result<(), Message> {
    check_tree(&store.tree)?;
    check_pins(store, ledger)?;
    check_totals(store, ledger)
}

fn check_tree<V>(tree: &Tree<V>) -> Result<(), Message> {
    let (mut roots, mut label_bytes) = (0, 0);
    for (at, node) in tree.nodes.iter() {
        label_bytes += node.label.bytes();
        let children: Vec<u32> = tree.nodes.children(at).take(tree.nodes.len()).collect();
        let mut before = NONE;
        for &child in &children {
            if tree.nodes[child].parent != at || tree.nodes[child].before != before {
                return broken("sibling_link", format_args!("node {child}, a child of {at}"));
            }
            before = child;
        }
        let enough = match (&node.namespace, node.entry.is_some()) {
            (Some(_), has_entry) => !has_entry && !children.is_empty(),
            (None, has_entry) => has_entry || children.len() > 1,
        };
        if !enough {
            return broken("node_needed", format_args!("node {at}"));
        }
        if let Some(namespace) = &node.namespace {
            roots += 1;
            if tree.root(namespace) != Some(at) || node.parent != NONE || node.label.len() > 0 {
                return broken("root_place", format_args!("node {at}"));
            }
            continue;
        }
        if !node.label.is_tight() {
            return broken("label_room", format_args!("node {at}"));
        }
        let Some(first) = node.label.first() else {
            return broken("label_empty", format_args!("node {at}"));
        };
        // Finds the first child with this token: it must be this one.
        let hash = tree.child_hash(node.parent, first);
        let begins = |other: u32| {
            let other = &tree.nodes[other];
            other.parent == node.parent && other.label.first() == Some(first)
        };
        if tree.table.find(hash, begins) != Some(at) {
            return broken("child_table", format_args!("node {at}"));
        }
    }
    if tree.table.len() + roots != tree.nodes.len() || tree.roots.len() != roots {
        return broken("node_count", format_args!("{roots} roots"));
    }
    if label_bytes != tree.label_bytes {
        return broken("label_bytes", format_args!("{label_bytes}, not {}", tree.label_bytes));
    }
    Ok(())
}

fn check_pins<V>(store: &Store<V>, ledger: &Ledger<V>) -> Result<(), Message> {
    let links = &store.links;
    let mut pins = BTreeMap::new();
    for on in ledger.pins.iter() {
        *pins.entry(on.serial).or_insert(0) += 1;
    }
    if pins.values().sum::<u32>() as usize != ledger.pins.out() {
        return broken("pin_count", format_args!("{} are out", ledger.pins.out()));
    }
    let mut serials: Vec<_> = ledger.detached.keys().copied().collect();
    for (node, entry) in store.tree.nodes.entries() {
        serials.push(entry.serial);
        if pins.remove(&entry.serial).unwrap_or(0) != links.pins(node) {
            return broken("entry_pins", format_args!("node {node}"));
        }
        if links.contains(node) != (links.pins(node) == 0) {
            return broken("order_members", format_args!("node {node}"));
        }
    }
    for (serial, waiting) in &ledger.detached {
        if waiting.pins == 0 || pins.remove(serial) != Some(waiting.pins) {
            return broken("detached_pins", format_args!("snapshot {serial}"));
        }
    }
    if !pins.is_empty() {
        return broken("pin_entry", "a pin on nothing");
    }
    serials.sort_unstable();
    if serials.windows(2).any(|pair| pair[0] == pair[1]) {
        return broken("serial_unique", "two snapshots of one serial");
    }
    for on in ledger.pins.iter().filter(|on| !ledger.detached.contains_key(&on.serial)) {
        let entry = store.tree.nodes.get(on.node).and_then(|node| node.entry.as_ref());
        if entry.is_none_or(|entry| entry.serial != on.serial) {
            return broken("pin_node", format_args!("node {}", on.node));
        }
    }
    Ok(())
}

fn check_totals<V>(store: &Store<V>, ledger: &Ledger<V>) -> Result<(), Message> {
    let (nodes, links) = (&store.tree.nodes, &store.links);
    let entries = nodes.entries().count();
    if entries != ledger.entries {
        return broken("entry_count", format_args!("{entries}, not {}", ledger.entries));
    }
    let stored: u128 = nodes.entries().map(|(_, entry)| entry.bytes as u128).sum();
    let detached: u128 = ledger.detached.values().map(|waiting| waiting.bytes as u128).sum();
    if (stored + detached, detached) != (ledger.bytes, ledger.detached_bytes) {
        return broken("snapshot_bytes", format_args!("{stored} and {detached} detached"));
    }
    let pinned = nodes.entries().filter(|(node, _)| links.pins(*node) > 0).count();
    if pinned != ledger.pinned {
        return broken("pinned_count", format_args!("{pinned}, not {}", ledger.pinned));
    }
    if !links.is_sound(&ledger.order) {
        return broken("order_links", "a link without an answer");
    }
    let in_order = links.iter(&ledger.order).count();
    if in_order != ledger.entries - ledger.pinned {
        return broken("order_count", format_args!("{in_order} in the list"));
    }
    // What was inserted last may be over the limits as long as everything else is pinned.
    if ledger.is_over() && in_order > 1 {
        return broken("limits", format_args!("{in_order} entries could go"));
    }
    Ok(())
}
