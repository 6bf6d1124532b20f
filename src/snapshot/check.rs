//! Proves the invariants one by one, by a recount.
use super::NONE;
use super::ledger::Ledger;
use super::tree::Tree;
use std::collections::BTreeMap;

fn broken<T>(invariant: &str, what: impl std::fmt::Display) -> Result<T, String> {
    Err(format!("{invariant}: {what}"))
}

pub(super) fn check<V>(tree: &Tree, ledger: &Ledger<V>) -> Result<(), String> {
    check_tree(tree)?;
    check_entries(tree, ledger)?;
    check_pins(ledger)?;
    check_totals(ledger)
}

fn check_tree(tree: &Tree) -> Result<(), String> {
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
        let enough = match (&node.namespace, node.entry != NONE) {
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

fn check_entries<V>(tree: &Tree, ledger: &Ledger<V>) -> Result<(), String> {
    let mut entries = 0;
    for (at, node) in tree.nodes.iter().filter(|(_, node)| node.entry != NONE) {
        entries += 1;
        if ledger.get(node.entry).is_none_or(|record| record.node != at) {
            return broken("entry_link", format_args!("node {at}"));
        }
    }
    if entries != ledger.stored {
        return broken("entry_count", format_args!("{entries}, not {}", ledger.stored));
    }
    Ok(())
}

fn check_pins<V>(ledger: &Ledger<V>) -> Result<(), String> {
    let mut pins = BTreeMap::new();
    for record in ledger.pins.records() {
        *pins.entry(record).or_insert(0) += 1;
    }
    if pins.values().sum::<u32>() as usize != ledger.pins.out() {
        return broken("pin_count", format_args!("{} are out", ledger.pins.out()));
    }
    for (at, record) in ledger.iter() {
        if pins.remove(&at).unwrap_or(0) != record.pins {
            return broken("record_pins", format_args!("record {at}"));
        }
        if record.node == NONE && record.pins == 0 {
            return broken("record_needed", format_args!("record {at}"));
        }
        if ledger.recency.contains(at) != (record.node != NONE && record.pins == 0) {
            return broken("recency_members", format_args!("record {at}"));
        }
    }
    if !pins.is_empty() {
        return broken("pin_record", "a pin on no record");
    }
    if !ledger.recency.is_sound() {
        return broken("recency_links", "a link without an answer");
    }
    Ok(())
}

fn check_totals<V>(ledger: &Ledger<V>) -> Result<(), String> {
    let of = |detached: bool| ledger.iter().filter(move |(_, at)| (at.node == NONE) == detached);
    let bytes: u128 = ledger.iter().map(|(_, record)| record.bytes as u128).sum();
    let detached_bytes: u128 = of(true).map(|(_, record)| record.bytes as u128).sum();
    if (bytes, detached_bytes) != (ledger.bytes, ledger.detached_bytes) {
        return broken("snapshot_bytes", format_args!("{bytes}, {detached_bytes} of it detached"));
    }
    let pinned = of(false).filter(|(_, record)| record.pins > 0).count();
    if (of(false).count(), pinned) != (ledger.stored, ledger.pinned) {
        return broken("pinned_count", format_args!("{pinned}"));
    }
    let in_list = ledger.recency.iter().count();
    if in_list != ledger.stored - ledger.pinned {
        return broken("recency_count", format_args!("{in_list} in the list"));
    }
    // What was inserted last may be over the limits as long as everything else is pinned.
    if ledger.is_over() && in_list > 1 {
        return broken("limits", format_args!("{in_list} entries could go"));
    }
    Ok(())
}
