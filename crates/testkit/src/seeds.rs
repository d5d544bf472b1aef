//! The seed corpora of a protocol's fuzz targets, replayed.

use std::path::Path;

/// A fuzz target's name, and its function.
pub type Target<'a> = (&'a str, &'a dyn Fn(&[u8]));

/// Runs each target over each of its seeds, and checks that the targets are all that `fuzz/` has of
/// the protocol.
///
/// # Panics
/// A target is missing on either side, or has no seeds.
pub fn replay(protocol: &str, targets: &[Target<'_>]) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let of_it = |name: &String| name.starts_with(&format!("{protocol}_"));
    let mut known: Vec<_> = names(&fuzz.join("fuzz_targets"))
        .iter()
        .map(|name| name.trim_end_matches(".rs").to_owned())
        .filter(of_it)
        .collect();
    let mut given: Vec<_> = targets.iter().map(|(name, _)| (*name).to_owned()).collect();
    known.sort();
    given.sort();
    assert_eq!(given, known, "the fuzz targets of {protocol}");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("fuzz has a manifest");
    for (target, run) in targets {
        let listed = format!("name = \"{target}\"\n");
        assert!(manifest.contains(&listed), "{target} in fuzz/Cargo.toml");
        let folder = fuzz.join("seeds").join(target);
        let seeds = names(&folder);
        assert!(!seeds.is_empty(), "{target} has no seeds");
        for seed in seeds {
            run(&std::fs::read(folder.join(seed)).expect("a seed is a file"));
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("it is a folder");
    let names = entries.map(|entry| entry.expect("it can be read").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}
