//! The emulated libcuda.so, built from the kernels' own source; with RKV_CUDA_KERNELS=ptx from what
//! nvcc made of it.
#[path = "ptx/mod.rs"]
mod ptx;

use radixkv::gpu::{Heads, heads, heads_of_sm90, kernel_table};
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether the kernels are to be what nvcc made.
pub fn from_ptx() -> bool {
    std::env::var("RKV_CUDA_KERNELS").is_ok_and(|kernels| kernels == "ptx")
}

/// Compiles the kernels and the driver, unless they are unchanged; returns the library. In its
/// folder it is there by the name, too, that drivers have where they are installed.
pub fn build() -> PathBuf {
    let kernels = root().join("kernels");
    let mut files: Vec<PathBuf> = [kernels.clone(), kernels.join("emulation")]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let from_ptx = from_ptx();
    let mut hasher = DefaultHasher::new();
    (FLAGS, from_ptx, TRANSLATOR).hash(&mut hasher);
    files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut hasher));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("emulated-driver-{:016x}", hasher.finish()));
    let library = folder.join("libcuda.so");
    if library.is_file() {
        return library;
    }
    fs::create_dir_all(&folder).unwrap();
    let mut sources: Vec<(PathBuf, Dims)> = heads()
        .iter()
        .rev()
        .map(|heads| (kernels.join("attn_mma.cu"), Some((heads.head_dim, heads.v_head_dim))))
        .collect();
    let of_hopper = heads_of_sm90().map(|Heads { head_dim, v_head_dim, .. }| {
        (kernels.join("attn_sm90.cu"), Some((head_dim, v_head_dim)))
    });
    sources.extend(of_hopper);
    sources.push((kernels.join("memory.cu"), None));
    if from_ptx {
        let translated =
            sources.iter().map(|(source, dims)| (as_ptx(source, *dims, &folder), None));
        sources = translated.collect();
    }
    let others = ["machine", "units", "products", "driver", "copies", "graphs"];
    sources.extend(others.map(|name| (kernels.join(format!("emulation/{name}.cpp")), None)));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut objects = Vec::new();
    for round in sources.chunks(jobs) {
        let running: Vec<(Child, PathBuf)> = round
            .iter()
            .map(|(source, dims)| {
                let object = folder.join(format!("{}-{}.o", std::process::id(), objects.len()));
                objects.push(object.clone());
                let mut command = Command::new("g++");
                command.args(FLAGS).args(definitions(*dims)).arg("-I").arg(root());
                if source.starts_with(&folder) {
                    command.args(["-w", "-O1"]); // translated: nobody reads it
                }
                command.args(["-x", "c++", "-c"]).arg(source).arg("-o").arg(&object);
                (command.spawn().expect("g++ runs"), object)
            })
            .collect();
        for (mut child, object) in running {
            assert!(child.wait().unwrap().success(), "{}", object.display());
        }
    }
    let part = folder.join(format!("{}.so", std::process::id()));
    let linked = Command::new("g++")
        .args(["-shared", "-Wl,-soname,libcuda.so", "-o"])
        .arg(&part)
        .args(&objects)
        .status();
    assert!(linked.expect("g++ runs").success());
    // Others may have come first.
    let _ = symlink("libcuda.so", folder.join("libcuda.so.1"));
    fs::rename(part, &library).unwrap();
    library
}

/// A library that another one made is not taken.
const TRANSLATOR: [&str; 3] = [
    include_str!("ptx/mod.rs"),
    include_str!("ptx/instructions.rs"),
    include_str!("ptx/hopper.rs"),
];

const FLAGS: [&str; 6] = ["-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror"];

/// Elements of heads of K and of V that a source is built for.
type Dims = Option<(usize, usize)>;

fn definitions(dims: Dims) -> Vec<String> {
    let define = |(k, v)| vec![format!("-DRKV_HEAD_DIM={k}"), format!("-DRKV_V_HEAD_DIM={v}")];
    dims.map_or(Vec::new(), define)
}

/// The kernels of a source as nvcc makes them, translated.
fn as_ptx(source: &Path, dims: Dims, folder: &Path) -> PathBuf {
    let nvcc = Path::new(env!("RKV_CUDA_HOME")).join("bin/nvcc");
    let is_hopper = source.ends_with("attn_sm90.cu");
    // As the newest that say more than the oldest: they wait for the launch before them.
    let arch = if is_hopper { "90a" } else { "90" };
    let output = Command::new(&nvcc)
        .args(["-std=c++17", "-O3", "-ptx", "-o", "-"])
        .arg(format!("-gencode=arch=compute_{arch},code=compute_{arch}"))
        .args(definitions(dims))
        .arg(source)
        .output()
        .unwrap_or_else(|error| panic!("RKV_CUDA_KERNELS=ptx needs nvcc, {nvcc:?}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut text = "#include \"kernels/emulation/ptx.hpp\"\nusing namespace rkv;\n".to_owned();
    let table = kernel_table();
    for kernel in ptx::translate(&String::from_utf8(output.stdout).unwrap()) {
        let ptx::Kernel { name, threads, argument_bytes, source } = kernel;
        let shared = table.iter().find(|known| known.0 == name).map_or(0, |known| known.2);
        writeln!(
            text,
            "{source}static const emulation::KernelEntry {name}_entry(\
             {{\"{name}\", {threads}, {shared}, {argument_bytes}, {is_hopper}, {name}}});"
        )
        .unwrap();
    }
    let stem = source.file_stem().unwrap().to_string_lossy();
    let dims = dims.map_or(String::new(), |(k, v)| format!("{k}-{v}"));
    let translated = folder.join(format!("{}-{stem}{dims}.cpp", std::process::id()));
    fs::write(&translated, text).unwrap();
    translated
}
