//! The emulated libcuda.so, built from the kernels' own source; with RKV_CUDA_KERNELS=ptx from what
//! nvcc made of it, with RKV_CUDA_KERNELS=ptx:64,576 of such heads.
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

/// Which kernels are to be what nvcc made: none, all, or those with some elements of K's heads.
enum FromPtx {
    Nothing,
    All,
    Heads(Vec<usize>),
}

impl FromPtx {
    /// As RKV_CUDA_KERNELS says: `ptx`, or `ptx:64,576`.
    fn wanted() -> Self {
        let Ok(wanted) = std::env::var("RKV_CUDA_KERNELS") else { return Self::Nothing };
        match wanted.strip_prefix("ptx") {
            Some("") => Self::All,
            Some(heads) if heads.starts_with(':') => {
                let numbers = heads[1..].split(',').map(|number| number.parse());
                Self::Heads(numbers.collect::<Result<_, _>>().expect("RKV_CUDA_KERNELS=ptx:64,80"))
            }
            _ => panic!("RKV_CUDA_KERNELS is {wanted}: neither ptx nor ptx:64,80"),
        }
    }

    /// What has no heads is taken with any.
    fn has(&self, dims: Dims) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Heads(heads) => dims.is_none_or(|(head_dim, _)| heads.contains(&head_dim)),
        }
    }

    /// The folder of a library of such kernels.
    fn name(&self) -> String {
        match self {
            Self::Nothing => "source".to_owned(),
            Self::All => "ptx".to_owned(),
            Self::Heads(heads) => {
                heads.iter().fold("ptx".to_owned(), |name, head_dim| format!("{name}-{head_dim}"))
            }
        }
    }
}

/// Whether some kernels are to be what nvcc made.
#[allow(dead_code)] // what is no test of kernels needs the driver alone
pub fn from_ptx() -> bool {
    !matches!(FromPtx::wanted(), FromPtx::Nothing)
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
    let mut hasher = DefaultHasher::new();
    (FLAGS, TRANSLATOR).hash(&mut hasher);
    files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut hasher));
    let objects = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("emulated-driver-{:016x}", hasher.finish()));
    let from_ptx = FromPtx::wanted();
    let folder = objects.join(from_ptx.name());
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
    let mut units: Vec<Unit> = sources
        .into_iter()
        .map(|(source, dims)| Unit { source, dims, is_ptx: from_ptx.has(dims) })
        .collect();
    units.extend(["machine", "units", "products", "driver", "copies", "graphs"].map(|name| {
        let source = kernels.join(format!("emulation/{name}.cpp"));
        Unit { source, dims: None, is_ptx: false }
    }));
    let missing: Vec<&Unit> = units.iter().filter(|unit| !unit.object(&objects).exists()).collect();
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    for round in missing.chunks(jobs) {
        // Others may come first: each object appears whole.
        let part = |unit: &Unit| {
            unit.object(&objects).with_extension(format!("{}.part", std::process::id()))
        };
        let running: Vec<(Child, &Unit)> =
            round.iter().map(|unit| (unit.compile(&objects, &part(unit)), *unit)).collect();
        for (mut child, unit) in running {
            assert!(child.wait().unwrap().success(), "{}", unit.name());
            fs::rename(part(unit), unit.object(&objects)).unwrap();
        }
    }
    let part = folder.join(format!("{}.so", std::process::id()));
    let linked = Command::new("g++")
        .args(["-shared", "-Wl,-soname,libcuda.so", "-o"])
        .arg(&part)
        .args(units.iter().map(|unit| unit.object(&objects)))
        .status();
    assert!(linked.expect("g++ runs").success());
    let _ = symlink("libcuda.so", folder.join("libcuda.so.1"));
    fs::rename(part, &library).unwrap();
    library
}

/// A part of the library, compiled by itself.
struct Unit {
    source: PathBuf,
    dims: Dims,
    is_ptx: bool,
}

impl Unit {
    fn name(&self) -> String {
        let stem = self.source.file_stem().unwrap().to_string_lossy();
        let dims = self.dims.map_or(String::new(), |(k, v)| format!("{k}-{v}"));
        format!("{stem}{dims}{}", if self.is_ptx { "-ptx" } else { "" })
    }

    fn object(&self, folder: &Path) -> PathBuf {
        folder.join(self.name() + ".o")
    }

    fn compile(&self, folder: &Path, object: &Path) -> Child {
        let mut command = Command::new("g++");
        command.args(FLAGS);
        let source = match self.is_ptx {
            true => {
                command.args(["-w", "-O1"]); // nobody reads it
                as_ptx(&self.source, self.dims, folder)
            }
            false => {
                command.args(definitions(self.dims));
                if self.source.extension().is_some_and(|extension| extension == "cpp") {
                    command.arg("-O3"); // the machine itself, where all tests spend their time
                }
                self.source.clone()
            }
        };
        command.arg("-I").arg(root()).args(["-x", "c++", "-c"]).arg(source);
        command.arg("-o").arg(object).spawn().expect("g++ runs")
    }
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
