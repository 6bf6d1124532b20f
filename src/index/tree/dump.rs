//! The tree as text, for people and tools.
use super::super::Namespace;
use super::node::{Held, State};
use super::{Tree, TreeNode};
use std::fmt::Write;

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

impl<H: Held> Tree<H> {
    fn all_nodes(&self) -> impl Iterator<Item = (u32, &TreeNode<H>)> {
        let nodes = self.nodes.numbers().map(|at| (at, &self.nodes[at]));
        nodes.filter(|(_, node)| node.state == State::Node)
    }

    /// One JSON object; `content` writes the fields in which a node says what it stands for.
    pub fn dump_json(&self, content: impl Fn(&H) -> String) -> String {
        let mut text = format!(
            "{{\"page_size\": {}, \"clock\": {}, \"cached_pages\": {}, \"reclaimable_pages\": {}, \
             \"namespaces\": [",
            self.page_size, self.clock, self.cached_pages, self.reclaimable_pages
        );
        for (at, (name, root)) in self.roots.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let (id, name) = (self.id(root).0, namespace_json(name));
            let _ = write!(text, "{comma}\n  {{\"root\": {id}, \"namespace\": {name}}}");
        }
        text.push_str("\n], \"nodes\": [");
        for (count, (at, node)) in self.all_nodes().enumerate() {
            let comma = if count > 0 { ", " } else { "" };
            let _ = write!(
                text,
                "{comma}\n  {{\"id\": {}, \"parent\": {}, \"start_page\": {}, \"locks\": {}, \
                 \"own_locks\": {}, \"last_access\": {}, \"hits\": {}, \"pages\": {:?}, {}}}",
                self.id(at).0,
                self.id(node.parent).0,
                node.start,
                node.locks,
                node.own_locks(),
                node.last_access,
                node.hits,
                node.pages(),
                content(&node.held)
            );
        }
        text.push_str("\n]}\n");
        text
    }

    /// A Graphviz digraph; `content` says in short what a node stands for.
    pub fn dump_dot(&self, content: impl Fn(&H) -> String) -> String {
        let mut text = String::from(
            "digraph radixkv {\n  rankdir=LR;\n  node [shape=box, style=filled, \
             fillcolor=white, fontname=\"monospace\"];\n",
        );
        for (name, root) in self.roots.iter() {
            let label = namespace_label(name);
            let _ = writeln!(text, "  n{root} [label=\"{label}\", shape=oval];");
        }
        for (at, node) in self.all_nodes() {
            let color = if node.locks > 0 { ", fillcolor=lightblue" } else { "" };
            let _ = writeln!(
                text,
                "  n{at} [label=\"{}\\n{} pages, {} locks, used at {}, {} hits\"\
                 {color}];\
                 \n  n{} -> n{at};",
                content(&node.held),
                node.page_count(),
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
