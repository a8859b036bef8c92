//! Does the library leave the program that embeds it alone? A program outside the workspace is built and run.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn serde_types_of_an_embedding_program_keep_working() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let source = library.join("tests/embedder");
    let manifest = fs::read_to_string(source.join("Cargo.toml")).unwrap();
    let manifest = manifest.replace("../..", library.to_str().unwrap());
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::copy(source.join("src/main.rs"), folder.path().join("src/main.rs")).unwrap();
    // The versions of the workspace, so that nothing has to be fetched.
    let lock = library.join("../../Cargo.lock");
    fs::copy(lock, folder.path().join("Cargo.lock")).unwrap();
    // The target folder of this test, so that what both need for building is compiled once.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["run", "--offline", "--quiet", "--manifest-path"])
        .arg(folder.path().join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}
