//! Installed Python packages: their modules, as their installer recorded them.

use std::fs;
use std::io;
use std::path::Path;

use super::inspection;

/// An installed distribution.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wheel {
    /// Its normalised name.
    pub(super) name: String,
    /// Its top-level modules.
    pub(super) modules: Vec<String>,
}

impl Wheel {
    /// Public modules, the one named like the package first. Stubs and private modules are not loaded.
    pub(super) fn best_first(&self) -> Vec<String> {
        let public = |module: &&String| !module.starts_with('_') && !module.ends_with("-stubs");
        let mut modules: Vec<String> = self.modules.iter().filter(public).cloned().collect();
        let alike = |module: &str| !self.name.contains(&normalised(module));
        modules.sort_by_key(|module| (normalised(module) != self.name, alike(module)));
        modules
    }
}

/// Reads every distribution of a `site-packages`.
pub(super) fn read(library: &Path) -> io::Result<Vec<Wheel>> {
    let mut wheels = Vec::new();
    for entry in fs::read_dir(library)? {
        let name = entry?.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".dist-info")) else {
            continue;
        };
        let Some((distribution, _version)) = stem.split_once('-') else { continue };
        let record =
            inspection::read_to_string(&library.join(&name).join("RECORD")).unwrap_or_default();
        wheels.push(Wheel { name: normalised(distribution), modules: modules(&record) });
    }
    wheels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(wheels)
}

/// Top-level modules among recorded paths.
fn modules(record: &str) -> Vec<String> {
    let mut modules: Vec<String> = record.lines().filter_map(module).collect();
    modules.sort();
    modules.dedup();
    modules
}

/// The module a line of `RECORD` belongs to.
fn module(line: &str) -> Option<String> {
    let path = line.trim_start_matches('"').split(',').next()?;
    let (first, inside) = match path.split_once('/') {
        Some((directory, inside)) => (directory, Some(inside)),
        None => (path, None),
    };
    let is_code = |file: &str| {
        [".py", ".so", ".pyd"].iter().any(|ending| file.to_ascii_lowercase().ends_with(ending))
    };
    let name = match inside {
        Some(inside) => is_code(inside).then_some(first)?,
        // `six.py`, `_cffi_backend.cpython-311-x86_64-linux-gnu.so`
        None => is_code(first).then(|| first.split('.').next())??,
    };
    let identifier = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c == '_' || c.is_alphanumeric());
    identifier.then(|| name.to_owned())
}

/// PEP 503.
fn normalised(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_from_recorded_files() {
        let record = "../../../bin/f2py,sha256=x,3\nnumpy-2.4.dist-info/METADATA,,\nnumpy.libs/libopenblas.so,,\nnumpy/__init__.py,,\nnumpy/core/x.py,,\nsix.py,,\n_cffi_backend.cpython-311-x86_64-linux-gnu.so,,\n__pycache__/six.cpython-311.pyc,,\nfoo-stubs/__init__.pyi,,\n";
        assert_eq!(modules(record), ["_cffi_backend", "numpy", "six"]);
    }

    #[test]
    fn the_module_named_like_its_package_is_tried_first() {
        let wheel = Wheel {
            name: "python-slugify".into(),
            modules: vec!["_x".into(), "other".into(), "slugify".into()],
        };
        assert_eq!(wheel.best_first(), ["slugify", "other"]);
        let wheel = Wheel { name: "attrs".into(), modules: vec!["attr".into(), "attrs".into()] };
        assert_eq!(wheel.best_first(), ["attrs", "attr"]);
    }
}
