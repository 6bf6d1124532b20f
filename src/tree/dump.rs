//! The tree as text, for people and tools.
use super::node::{Held, State};
use super::{Namespace, Tree, TreeNode};
use crate::memory::OutOfMemory;
use std::fmt::{self, Display, Formatter, Write};

/// Text that is refused to grow when there is no memory.
#[derive(Debug, Default)]
pub struct Text(String);

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0.try_reserve(part.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(part);
        Ok(())
    }
}

impl Text {
    /// Text that `write` writes.
    fn made(write: impl FnOnce(&mut Self) -> fmt::Result) -> Result<String, OutOfMemory> {
        let mut text = Self::default();
        write(&mut text).map_err(|_| OutOfMemory)?;
        Ok(text.0)
    }
}

/// Writes what hangs on the pages of a node.
pub type Hanging<'a> = dyn Fn(&mut Text, &[u32]) -> fmt::Result + 'a;

struct Hex<'a>(&'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn namespace_json(text: &mut Text, name: &Namespace) -> fmt::Result {
    match name.lora {
        Some(lora) => write!(text, "{{\"lora_id\": {lora}, ")?,
        None => write!(text, "{{\"lora_id\": null, ")?,
    }
    match &name.image {
        Some(image) => write!(text, "\"image\": \"{}\", ", Hex(image))?,
        None => write!(text, "\"image\": null, ")?,
    }
    write!(text, "\"salt\": \"{}\", \"epoch\": {}}}", Hex(&name.salt), name.epoch)
}

fn namespace_label(text: &mut Text, name: &Namespace) -> fmt::Result {
    if *name == Namespace::default() {
        return text.write_str("default");
    }
    let mut parts = 0;
    let mut part = |arguments: fmt::Arguments<'_>| {
        text.write_str(if parts > 0 { "\\n" } else { "" })?;
        parts += 1;
        text.write_fmt(arguments)
    };
    if let Some(lora) = name.lora {
        part(format_args!("lora {lora}"))?;
    }
    if let Some(image) = &name.image {
        part(format_args!("image {}", Hex(&image[..4])))?;
    }
    if name.salt != [0; 32] {
        part(format_args!("salt {}", Hex(&name.salt[..4])))?;
    }
    if name.epoch != 0 {
        part(format_args!("epoch {}", name.epoch))?;
    }
    Ok(())
}

impl<H: Held> Tree<H> {
    fn all_nodes(&self) -> impl Iterator<Item = (u32, &TreeNode<H>)> {
        let nodes = self.nodes.numbers().map(|at| (at, &self.nodes[at]));
        nodes.filter(|(_, node)| node.state == State::Node)
    }

    /// One JSON object; `content` writes the fields in which a node says what it stands for,
    /// `hanging` those of what hangs on its pages, each after a comma.
    pub fn dump_json(
        &self,
        content: impl Fn(&mut Text, &H) -> fmt::Result,
        hanging: &Hanging<'_>,
    ) -> Result<String, OutOfMemory> {
        Text::made(|text| {
            write!(
                text,
                "{{\"page_size\": {}, \"clock\": {}, \"cached_pages\": {}, \
                 \"reclaimable_pages\": {}, \"namespaces\": [",
                self.page_size, self.clock, self.cached_pages, self.reclaimable_pages
            )?;
            for (at, (name, root)) in self.roots.iter().enumerate() {
                let (comma, id) = (if at > 0 { ", " } else { "" }, self.id(root).0);
                write!(text, "{comma}\n  {{\"root\": {id}, \"namespace\": ")?;
                namespace_json(text, name)?;
                text.write_str("}")?;
            }
            text.write_str("\n], \"nodes\": [")?;
            for (count, (at, node)) in self.all_nodes().enumerate() {
                let comma = if count > 0 { ", " } else { "" };
                write!(
                    text,
                    "{comma}\n  {{\"id\": {}, \"parent\": {}, \"start_page\": {}, \"locks\": {}, \
                     \"keepers\": {}, \"last_access\": {}, \"hits\": {}, \"pages\": {:?}, ",
                    self.id(at).0,
                    self.id(node.parent).0,
                    node.start,
                    node.locks,
                    node.keepers,
                    node.last_access,
                    node.hits,
                    node.pages()
                )?;
                content(text, &node.held)?;
                hanging(text, node.pages())?;
                text.write_str("}")?;
            }
            text.write_str("\n]}\n")
        })
    }

    /// A Graphviz digraph; `content` says in short what a node stands for, `hanging` what hangs on
    /// its pages, each in a line of its own.
    pub fn dump_dot(
        &self,
        content: impl Fn(&mut Text, &H) -> fmt::Result,
        hanging: &Hanging<'_>,
    ) -> Result<String, OutOfMemory> {
        Text::made(|text| {
            text.write_str(
                "digraph radixkv {\n  rankdir=LR;\n  node [shape=box, style=filled, \
                 fillcolor=white, fontname=\"monospace\"];\n",
            )?;
            for (name, root) in self.roots.iter() {
                write!(text, "  n{root} [label=\"")?;
                namespace_label(text, name)?;
                text.write_str("\", shape=oval];\n")?;
            }
            for (at, node) in self.all_nodes() {
                write!(text, "  n{at} [label=\"")?;
                content(text, &node.held)?;
                let color = if node.locks > 0 { ", fillcolor=lightblue" } else { "" };
                write!(
                    text,
                    "\\n{} pages, {} locks, used at {}, {} hits",
                    node.page_count(),
                    node.locks,
                    node.last_access,
                    node.hits,
                )?;
                hanging(text, node.pages())?;
                writeln!(text, "\"{color}];\n  n{} -> n{at};", node.parent)?;
            }
            text.write_str("}\n")
        })
    }
}
