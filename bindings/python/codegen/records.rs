//! Python classes of the structs that calls fill, and the layouts of those that lie in arrays.
use std::fmt::Write;

use crate::declarations::rust_type;
use crate::header::{Field, Header, Struct};

/// A struct, and the class that shows one.
const CLASSES: &[(&str, &str)] = &[
    ("rkv_shortage", "Shortage"),
    ("rkv_index_memory_stats", "IndexMemoryStats"),
    ("rkv_page_table_stats", "PageTableStats"),
    ("rkv_pool_stats", "PoolStats"),
    ("rkv_cache_match_result", "Match"),
    ("rkv_cache_insert_result", "InsertResult"),
    ("rkv_cache_clear_result", "ClearResult"),
    ("rkv_group_depths", "GroupDepths"),
    ("rkv_node_info", "NodeInfo"),
    ("rkv_cache_stats", "CacheStats"),
    ("rkv_sequence_info", "SequenceInfo"),
    ("rkv_sequence_publish_result", "PublishResult"),
    ("rkv_runner_stats", "RunnerStats"),
    ("rkv_cache_read_journal_result", "JournalResult"),
    ("rkv_cache_read_contents_result", "ContentsResult"),
    ("rkv_snapshot_cache_stats", "SnapshotStats"),
    ("rkv_snapshot_cache_insert_result", "SnapshotInsertResult"),
    ("rkv_snapshot_tier_stats", "SnapshotTierStats"),
    ("rkv_tier_totals", "TierTotals"),
    ("rkv_remote_totals", "RemoteTotals"),
    ("rkv_tier_stats", "TierStats"),
    ("rkv_sequence_fetch_result", "FetchResult"),
    ("rkv_cache_prefetch_result", "PrefetchResult"),
];

/// A struct that lies in arrays, and the name of its layout.
const ARRAYS: &[(&str, &str)] = &[
    ("rkv_cache_match_result", "match"),
    ("rkv_cache_probe_result", "probe"),
    ("rkv_group_cost", "group_cost"),
    ("rkv_locked_page", "locked_page"),
    ("rkv_evicted_page", "evicted_page"),
    ("rkv_sequence_info", "sequence_info"),
    ("rkv_sequence_publish_result", "publish_result"),
    ("rkv_published_group", "published_group"),
    ("rkv_group_stats", "group_stats"),
    ("rkv_sequence_fork_child", "fork_child"),
    ("rkv_page_copy", "page_copy"),
    ("rkv_journal_record", "journal_record"),
    ("rkv_journal_item", "journal_item"),
    ("rkv_copy_job", "copy_job"),
    ("rkv_fetch_end", "fetch_end"),
];

fn find<'a>(header: &'a Header, name: &str) -> &'a Struct {
    header.structs.iter().find(|item| item.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn shown(field: &&Field) -> bool {
    !matches!(field.name.as_str(), "struct_size" | "reserved")
}

/// The class of a struct that lies in another one.
fn class_of(field: &Field) -> Option<&'static str> {
    CLASSES.iter().find(|(name, _)| *name == field.kind).map(|(_, class)| *class)
}

/// The header's words for a reader who knows the Python names: `rkv_cache_unlock()` is
/// `Cache.unlock()`, `RKV_MATCH_LOCK` is `MATCH_LOCK`.
fn in_python(doc: &str) -> String {
    let mut doc = doc.to_owned();
    for (from, to) in [
        ("rkv_last_shortage()", "Error.shortage"),
        ("rkv_sequence_begin()", "Cache.begin()"),
        ("rkv_sequence_continue()", "Cache.continue_from()"),
        ("rkv_sequence_fork()", "Cache.fork()"),
        ("rkv_sequence_read_copies()", "Sequence.copies()"),
        ("rkv_sequence_read_published()", "Sequence.published()"),
        ("rkv_cache_read_group_stats()", "Cache.group_stats()"),
        ("rkv_cache_drop_retained_pool()", "Cache.drop_retained()"),
        ("rkv_cache_config.", "the cache's "),
        ("rkv_sequence_", "Sequence."),
        ("rkv_snapshot_cache_", "SnapshotCache."),
        ("rkv_cache_match_result.", "Match."),
        ("rkv_sequence_info.", "SequenceInfo."),
        ("rkv_cache_", "Cache."),
        ("rkv_page_table_", "PageTable."),
        ("rkv_plan_", "Plan."),
        ("rkv_runner_", "Runner."),
        ("rkv_", ""),
        ("RKV_", ""),
    ] {
        doc = doc.replace(from, to);
    }
    doc.replace('"', "'")
}

fn class(text: &mut String, item: &Struct, class: &str) {
    let name = &item.name;
    let doc = in_python(&item.doc);
    writeln!(text, "#[doc = \"{doc}\"]").unwrap();
    writeln!(text, "#[pyclass(frozen, module = \"radixkv\")]").unwrap();
    writeln!(text, "pub struct {class}(pub {name});").unwrap();
    writeln!(text, "#[pymethods]\nimpl {class} {{").unwrap();
    let fields: Vec<_> = item.fields.iter().filter(shown).collect();
    for field in &fields {
        let (mut kind, mut value) = (rust_type(&field.kind), format!("self.0.{}", field.name));
        if field.length == Some(2) {
            (kind, value) = (format!("({kind}, {kind})"), format!("{value}.into()"));
        }
        if let Some(inside) = class_of(field) {
            (kind, value) = (inside.to_owned(), format!("{inside}({value})"));
        }
        writeln!(text, "    #[doc = \"{}\"]\n    #[getter]", in_python(&field.doc)).unwrap();
        writeln!(text, "    fn {}(&self) -> {kind} {{ {value} }}", field.name).unwrap();
    }
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for field in &fields {
        let value = format!("self.0.{}", field.name);
        let inside = class_of(field);
        names.push(format!("{}={{{}}}", field.name, if inside.is_some() { "" } else { ":?" }));
        values.push(match inside {
            Some(inside) => format!("{inside}({value}).__repr__()"),
            None => value,
        });
    }
    writeln!(text, "    fn __repr__(&self) -> String {{").unwrap();
    let (names, values) = (names.join(", "), values.join(", "));
    writeln!(text, "        format!(\"{class}({names})\", {values})\n    }}").unwrap();
    writeln!(text, "    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Remade<'py>> {{")
        .unwrap();
    writeln!(text, "        let mut numbers = Vec::new();").unwrap();
    writeln!(text, "        this.get().numbers(&mut numbers);").unwrap();
    writeln!(text, "        pickle::by_method(this, (\"_of\", numbers), None)\n    }}").unwrap();
    writeln!(text, "    #[staticmethod]\n    fn _of(numbers: Vec<u64>) -> Self {{").unwrap();
    writeln!(text, "        Self::of(&mut numbers.into_iter())\n    }}\n}}").unwrap();
    numbers(text, item, class);
}

/// All fields of a class in order, as one number each, and back. What an object of another version
/// lacks is zero. Reserved ones have their places: in another version they may have a meaning.
fn numbers(text: &mut String, item: &Struct, class: &str) {
    let (mut there, mut back) = (String::new(), String::new());
    for field in item.fields.iter().filter(|field| field.name != "struct_size") {
        let (name, kind) = (&field.name, rust_type(&field.kind));
        assert!(!kind.contains('*') && !kind.starts_with('f'), "{kind} is no whole number");
        let next = format!("from.next().unwrap_or_default() as {kind}");
        if let Some(inside) = class_of(field) {
            writeln!(there, "        {inside}(self.0.{name}).numbers(into);").unwrap();
            writeln!(back, "        made.{name} = {inside}::of(from).0;").unwrap();
        } else if field.length.is_some() {
            writeln!(there, "        into.extend(self.0.{name}.map(|it| it as u64));").unwrap();
            writeln!(back, "        made.{name} = std::array::from_fn(|_| {next});").unwrap();
        } else {
            writeln!(there, "        into.push(self.0.{name} as u64);").unwrap();
            writeln!(back, "        made.{name} = {next};").unwrap();
        }
    }
    let is_sized = item.fields.iter().any(|field| field.name == "struct_size");
    let (name, empty) = (&item.name, if is_sized { "sized" } else { "zeroed" });
    writeln!(text, "#[allow(clippy::unnecessary_cast)]\nimpl {class} {{").unwrap();
    writeln!(text, "    fn numbers(&self, into: &mut Vec<u64>) {{\n{there}    }}").unwrap();
    writeln!(text, "    fn of(from: &mut std::vec::IntoIter<u64>) -> Self {{").unwrap();
    writeln!(text, "        let mut made = {name}::{empty}();\n{back}").unwrap();
    writeln!(text, "        {class}(made)\n    }}\n}}").unwrap();
}

/// What NumPy calls a field's type.
fn format(field: &Field) -> String {
    let element = match rust_type(&field.kind).as_str() {
        "u8" => "u1",
        "u32" => "u4",
        _ => "u8",
    };
    match field.length {
        Some(length) => format!("({length},){element}"),
        None => element.to_owned(),
    }
}

pub fn write(header: &Header) -> String {
    let mut text = String::new();
    for (name, shown_as) in CLASSES {
        class(&mut text, find(header, name), shown_as);
    }
    writeln!(text, "pub fn add_classes(module: &Bound<'_, PyModule>) -> PyResult<()> {{").unwrap();
    for (_, class) in CLASSES {
        writeln!(text, "    module.add_class::<{class}>()?;").unwrap();
    }
    writeln!(text, "    Ok(())\n}}").unwrap();
    writeln!(text, "pub const LAYOUTS: &[Layout] = &[").unwrap();
    for (name, layout) in ARRAYS {
        writeln!(text, "    Layout {{ name: \"{layout}\", size: size_of::<{name}>(), fields: &[")
            .unwrap();
        for field in &find(header, name).fields {
            let at = format!("std::mem::offset_of!({name}, {})", field.name);
            writeln!(text, "        (\"{}\", \"{}\", {at}),", field.name, format(field)).unwrap();
        }
        writeln!(text, "    ] }},").unwrap();
    }
    writeln!(text, "];").unwrap();
    text
}
