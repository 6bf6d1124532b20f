//! The tree as text, for people and tools.
use super::super::{Namespace, Node, PrefixIndex};
use super::RadixIndex;
use super::node::State;
use crate::token::is_text;
use std::fmt::Write;

/// Keys that a picture shows of a segment.
const SHOWN: usize = 8;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn namespace_json(name: &Namespace) -> String {
    let lora = name.lora.map_or("null".into(), |lora| lora.to_string());
    let image = name.image.map_or("null".into(), |image| format!("\"{}\"", hex(&image)));
    let (salt, epoch) = (hex(&name.salt), name.epoch);
    format!("{{\"lora_id\": {lora}, \"image\": {image}, \"salt\": \"{salt}\", \"epoch\": {epoch}}}")
}

fn namespace_label(name: &Namespace) -> String {
    let mut parts = Vec::new();
    parts.extend(name.lora.map(|lora| format!("lora {lora}")));
    parts.extend(name.image.map(|image| format!("image {}", hex(&image[..4]))));
    parts.extend((name.salt != [0; 32]).then(|| format!("salt {}", hex(&name.salt[..4]))));
    parts.extend((name.epoch != 0).then(|| format!("epoch {}", name.epoch)));
    if parts.is_empty() { "default".into() } else { parts.join("\\n") }
}

/// Keys as a person reads them: text ids as numbers, the others by kind and number.
fn keys_text(keys: &[u32]) -> Vec<String> {
    let text = |&key: &u32| match crate::token::image_number(key) {
        Some(number) => format!("image{number}"),
        None if is_text(key) => key.to_string(),
        None => format!("bin{}", key - crate::token::TEXT_ID_LIMIT),
    };
    keys.iter().map(text).collect()
}

impl RadixIndex {
    pub(super) fn dump_json(&self) -> String {
        let mut text = format!(
            "{{\"page_size\": {}, \"clock\": {}, \"cached_pages\": {}, \"reclaimable_pages\": {}, \
             \"namespaces\": [",
            self.page_size, self.clock, self.cached_pages, self.reclaimable_pages
        );
        for (at, (name, &root)) in self.roots.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let (id, name) = (self.id(Node(root)).0, namespace_json(name));
            let _ = write!(text, "{comma}\n  {{\"root\": {id}, \"namespace\": {name}}}");
        }
        text.push_str("\n], \"nodes\": [");
        let nodes = self.nodes.numbers().filter(|&at| self.nodes[at].state == State::Node);
        for (count, at) in nodes.enumerate() {
            let node = &self.nodes[at];
            let comma = if count > 0 { ", " } else { "" };
            let keys = keys_text(node.label.keys(self.page_size));
            let keys: Vec<_> = keys.iter().map(|key| format!("\"{key}\"")).collect();
            let _ = write!(
                text,
                "{comma}\n  {{\"id\": {}, \"parent\": {}, \"start_page\": {}, \"locks\": {}, \
                 \"own_locks\": {}, \"last_access\": {}, \"hits\": {}, \"pages\": {:?}, \
                 \"keys\": [{}]}}",
                self.id(Node(at)).0,
                self.id(Node(node.parent)).0,
                node.start,
                node.locks,
                node.own_locks(),
                node.last_access,
                node.hits,
                node.label.pages(self.page_size),
                keys.join(", ")
            );
        }
        text.push_str("\n]}\n");
        text
    }

    pub(super) fn dump_dot(&self) -> String {
        let mut text = String::from(
            "digraph radixkv {\n  rankdir=LR;\n  node [shape=box, style=filled, \
             fillcolor=white, fontname=\"monospace\"];\n",
        );
        for (name, &root) in &self.roots {
            let label = namespace_label(name);
            let _ = writeln!(text, "  n{root} [label=\"{label}\", shape=oval];");
        }
        for at in self.nodes.numbers().filter(|&at| self.nodes[at].state == State::Node) {
            let node = &self.nodes[at];
            let keys = node.label.keys(self.page_size);
            let more = if keys.len() > SHOWN { " ..." } else { "" };
            let shown = keys_text(&keys[..keys.len().min(SHOWN)]).join(" ");
            let color = if node.locks > 0 { ", fillcolor=lightblue" } else { "" };
            let _ = writeln!(
                text,
                "  n{at} [label=\"{shown}{more}\\n{} pages, {} locks, used at {}, {} hits\"\
                 {color}];\
                 \n  n{} -> n{at};",
                node.label.len(),
                node.locks,
                node.last_access,
                node.hits,
                node.parent
            );
        }
        text.push_str("}\n");
        text
    }
}
