//! Packages and their sources.

use lifecycle::dependency::{PackageIndex, PackageName};
use lifecycle::dialect::Language;

use super::{Expected, ValueType};

/// Addresses of package sources.
pub(in crate::config) fn indexes() -> ValueType<[String], Vec<PackageIndex>> {
    ValueType::any(|items| {
        let indexes = items.iter().map(|item| PackageIndex::parse(item)).collect::<Result<_, _>>();
        indexes.map_err(|problem| format!("addresses of package sources ({problem})"))
    })
}

/// Names of Python packages.
pub(in crate::config) fn python_packages() -> ValueType<[String], Vec<PackageName>> {
    ValueType {
        read: |items| packages(Language::Python, items),
        check: |names| same_packages(Language::Python, names),
    }
}

/// Names of gems.
pub(in crate::config) fn gems() -> ValueType<[String], Vec<PackageName>> {
    ValueType {
        read: |items| packages(Language::Ruby, items),
        check: |names| same_packages(Language::Ruby, names),
    }
}

fn packages(language: Language, items: &[String]) -> Result<Vec<PackageName>, Expected> {
    let parsed = |name: &String| {
        PackageName::parse(language, name)
            .ok_or_else(|| format!("names of packages without versions (`{name}` is not one)"))
    };
    items.iter().map(parsed).collect()
}

/// Checks that names are those of packages of this language: another compares names in another way.
fn same_packages(
    language: Language,
    names: Vec<PackageName>,
) -> Result<Vec<PackageName>, Expected> {
    let is_other = |name: &&PackageName| {
        PackageName::parse(language, &name.to_string()).as_ref() != Some(*name)
    };
    match names.iter().find(is_other) {
        Some(name) => Err(format!("names of {language} packages (`{name}` is not one)")),
        None => Ok(names),
    }
}
