//! Builds the kernels ahead of time: a fatbin for each source, machine code for every GPU that is
//! listed and PTX for those that come later. Without nvcc the library is built without kernels.
//!
//! RADIXKV_CUDA        0: never; 1: nvcc must be there; otherwise: when it is there
//! RADIXKV_CUDA_ARCHS  other targets than the usual, e.g. "80 90a"; the first one's PTX is kept too
//! CUDA_HOME           where nvcc is looked for first; then target/cuda, see `make cuda-toolchain`,
//!                     then the PATH
//!
//! What was built is kept in target/kernels, or RADIXKV_KERNEL_CACHE, under a name made of all that
//! it was built from, because nvcc takes minutes and cargo would run it again for each profile.
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Compute capabilities with machine code of their own. The suffixes a and f add the instructions
/// of one generation; PTX is for the first.
const ARCHS: &str = "80 89 90a 100f 120f";
/// A source, and the head dims of K and of V as which it is built.
type Source = (&'static str, Option<(u32, u32)>);
const SOURCES: [Source; 11] = [
    ("memory", None),
    ("attn_mma", Some((64, 64))),
    ("attn_mma", Some((80, 80))),
    ("attn_mma", Some((96, 96))),
    ("attn_mma", Some((112, 112))),
    ("attn_mma", Some((128, 128))),
    ("attn_mma", Some((192, 128))),
    ("attn_mma", Some((192, 192))),
    ("attn_mma", Some((256, 256))),
    ("attn_mma", Some((512, 512))),
    ("attn_mma", Some((576, 512))),
];
/// Those of Hopper's own instructions, which no other GPU has.
const HOPPER_ARCH: &str = "90a";
const HOPPER_SOURCES: [Source; 5] = [
    ("attn_sm90", Some((64, 64))),
    ("attn_sm90", Some((128, 128))),
    ("attn_sm90", Some((192, 128))),
    ("attn_sm90", Some((256, 256))),
    ("attn_sm90", Some((576, 512))),
];

/// Compressed: the images are a tenth as large, and drivers that take this nvcc's machine code
/// unpack them.
const FLAGS: [&str; 3] = ["-std=c++17", "-O3", "--compress-mode=size"];

pub fn build(out: &Path) {
    println!("cargo:rerun-if-changed=kernels");
    println!("cargo:rerun-if-env-changed=CUDA_HOME");
    println!("cargo:rerun-if-env-changed=RADIXKV_CUDA");
    println!("cargo:rerun-if-env-changed=RADIXKV_CUDA_ARCHS");
    let wish = env::var("RADIXKV_CUDA").unwrap_or_default();
    let target = target_folder(out);
    let nvcc = if wish == "0" { None } else { find_nvcc(&target) };
    let sources = sources();
    println!("cargo:rustc-env=RKV_KERNEL_SOURCES={sources}");
    let missing = wish == "1" && nvcc.is_none();
    assert!(!missing, "RADIXKV_CUDA is 1, but there is no nvcc of 12.9 or later: set CUDA_HOME");
    // For the test that reads the machine code; empty without it.
    let home = nvcc.as_ref().and_then(|nvcc| nvcc.ancestors().nth(2));
    println!("cargo:rustc-env=RKV_CUDA_HOME={}", home.unwrap_or(Path::new("")).display());
    let [images, hopper] =
        nvcc.map_or_else(Default::default, |nvcc| build_all(&nvcc, &target, &sources));
    let paths: Vec<_> =
        images.iter().chain(&hopper).map(|image| image.display().to_string()).collect();
    println!("cargo:rustc-env=RKV_KERNEL_IMAGES={}", paths.join(":"));
    fs::write(out.join("kernels.rs"), embed(&images, &hopper)).unwrap();
}

/// Rust that holds the images. The driver wants them aligned; `include_bytes!` aligns to 1.
fn embed(images: &[PathBuf], hopper: &[PathBuf]) -> String {
    let mut text = String::new();
    if !images.is_empty() {
        text += "#[repr(C, align(64))]\nstruct Aligned<T>(T);\n";
    }
    for (at, image) in images.iter().chain(hopper).enumerate() {
        let (bytes, path) = (fs::metadata(image).unwrap().len(), image.display().to_string());
        text += &format!(
            "static IMAGE_{at}: Aligned<[u8; {bytes}]> = Aligned(*include_bytes!({path:?}));\n"
        );
    }
    let names: Vec<_> =
        (0..images.len() + hopper.len()).map(|at| format!("&IMAGE_{at}.0")).collect();
    let (common, hopper) = names.split_at(images.len());
    text += &format!("static EMBEDDED: &[&[u8]] = &[{}];\n", common.join(", "));
    text + &format!("static EMBEDDED_HOPPER: &[&[u8]] = &[{}];\n", hopper.join(", "))
}

/// target/, from target/<profile>/build/<package>/out.
fn target_folder(out: &Path) -> PathBuf {
    out.ancestors().nth(4).expect("cargo's folders").to_owned()
}

fn find_nvcc(target: &Path) -> Option<PathBuf> {
    let name = Path::new("bin/nvcc");
    let mut places: Vec<PathBuf> = Vec::new();
    places.extend(env::var_os("CUDA_HOME").map(|home| Path::new(&home).join(name)));
    for folder in [target.to_owned(), PathBuf::from("target")] {
        // A link that scripts/cuda_toolchain.sh makes.
        let home = folder.join("cuda/home");
        // Cargo takes what is missing for changed and would compile all again each time. That
        // script touches this file instead.
        if home.exists() {
            println!("cargo:rerun-if-changed={}", home.display());
        }
        places.push(home.join(name));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    places.extend(env::split_paths(&path).map(|folder| folder.join("nvcc")));
    let taken = places.into_iter().find(|place| place.is_file() && is_new_enough(place));
    taken.map(|place| place.canonicalize().unwrap())
}

/// Whether it knows FLAGS (12.8), and targets that end with an f (12.9). One that doesn't is no
/// reason to fail: most users of such a machine want the rest of the library.
fn is_new_enough(nvcc: &Path) -> bool {
    let archs = env::var("RADIXKV_CUDA_ARCHS").unwrap_or_else(|_| ARCHS.to_owned());
    let oldest = if archs.split_whitespace().any(|arch| arch.ends_with('f')) { 9 } else { 8 };
    let said = Command::new(nvcc).arg("--version").output().map(|output| output.stdout);
    let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
    let release = said.split("release ").nth(1).and_then(|rest| rest.split(',').next());
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u32>().ok());
    let mut parts = release.unwrap_or_default().split('.');
    let is_new = (number(parts.next()), number(parts.next())) >= (Some(12), Some(oldest));
    if !is_new {
        println!(
            "cargo:warning={} is not of CUDA 12.{oldest} or later, so no kernels are built with it",
            nvcc.display()
        );
    }
    is_new
}

/// Builds what was not built before; returns the images for every GPU, and those for Hopper.
fn build_all(nvcc: &Path, target: &Path, sources: &str) -> [Vec<PathBuf>; 2] {
    let archs = env::var("RADIXKV_CUDA_ARCHS").unwrap_or_else(|_| ARCHS.to_owned());
    let machine_code = |arch: &str| format!("-gencode=arch=compute_{arch},code=sm_{arch}");
    let mut flags: Vec<String> = archs.split_whitespace().map(machine_code).collect();
    let oldest = archs.split_whitespace().next().expect("RADIXKV_CUDA_ARCHS names a target");
    flags.push(format!("-gencode=arch=compute_{oldest},code=compute_{oldest}"));
    let has_hopper = archs.split_whitespace().any(|arch| arch == HOPPER_ARCH);
    let hopper_flags = vec![machine_code(HOPPER_ARCH)];

    let version = Command::new(nvcc).arg("--version").output().expect("nvcc runs");
    let mut hasher = DefaultHasher::new();
    (&version.stdout, &FLAGS, &flags, sources).hash(&mut hasher);
    let cache = env::var_os("RADIXKV_KERNEL_CACHE");
    let cache = cache.map_or_else(|| target.join("kernels"), PathBuf::from);
    let folder = cache.join(format!("{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).unwrap();
    // For a library without kernels of its own that is to take them from here (RADIXKV_KERNELS).
    fs::write(folder.join("sources"), sources).unwrap();
    let image = |flags, (source, dims): Source| {
        let dims_name = match dims {
            None => String::new(),
            Some((k, v)) if k == v => format!("_{k}"),
            Some((k, v)) => format!("_{k}_{v}"),
        };
        (folder.join(format!("{source}{dims_name}.fatbin")), source, dims, flags)
    };
    let common: Vec<_> = SOURCES.map(|source| image(&flags, source)).to_vec();
    let mut hopper = HOPPER_SOURCES.map(|source| image(&hopper_flags, source)).to_vec();
    hopper.retain(|_| has_hopper);
    let all = common.iter().chain(&hopper);
    let missing: Vec<_> = all.filter(|(image, ..)| !image.is_file()).collect();
    // As many at a time as cargo would run.
    let jobs: usize = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for round in missing.chunks(jobs.max(1)) {
        let running: Vec<_> = round
            .iter()
            .map(|(image, source, dims, flags)| {
                let part = image.with_extension(format!("part{}", std::process::id()));
                let mut command = Command::new(nvcc);
                command.args(FLAGS).args(*flags).arg("-fatbin").arg("-o").arg(&part);
                if let Some((k, v)) = dims {
                    command.args([format!("-DRKV_HEAD_DIM={k}"), format!("-DRKV_V_HEAD_DIM={v}")]);
                }
                command.arg(format!("kernels/{source}.cu"));
                (command.spawn().expect("nvcc runs"), part, image)
            })
            .collect();
        let mut failed = None;
        // All of them: none goes on behind this program's back.
        for (mut child, part, image) in running {
            if child.wait().unwrap().success() {
                // Whole or not at all, whoever else builds the same.
                fs::rename(part, image).unwrap();
            } else {
                let _ = fs::remove_file(part);
                failed = failed.or(Some(image.display()));
            }
        }
        if let Some(name) = failed {
            // Its own compiler may be one that it doesn't know.
            panic!("nvcc failed for {name}; RADIXKV_CUDA=0 builds without kernels");
        }
    }
    [common, hopper].map(|images| images.into_iter().map(|(image, ..)| image).collect())
}

/// A number that stands for the kernels' sources.
fn sources() -> String {
    let mut hasher = DefaultHasher::new();
    for file in files(Path::new("kernels"), &["cu", "cuh"]) {
        fs::read(file).unwrap().hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)))
        .collect();
    found.sort();
    found
}
