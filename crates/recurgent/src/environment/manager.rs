//! The interface of package managers.

use std::io;
use std::path::Path;
use std::time::Duration;

use lifecycle::dependency::DependencyManifest;

use super::command::{CommandEnv, FinishedCommand, InstallerFault};
use super::fault::{BuildFault, BuildStage};
use super::ready::Package;
use super::source::PackageSources;
use super::{Installed, inspection};
use crate::guest::interpreter::InterpreterInfo;

/// Builds an environment in four steps; the policy is checked between the second and the third.
pub(super) trait PackageManager {
    /// Chooses versions and writes a lock file.
    fn resolve(&self, limit: Duration) -> Result<(), BuildFault>;
    /// Every package of the lock file.
    fn locked(&self) -> Result<Vec<Package>, BuildFault>;
    /// Packages of the lock file that were published too recently, as texts; none if the tool itself chose by age.
    fn too_new(&self, locked: &[Package], limit: Duration) -> Result<Vec<String>, BuildFault>;
    /// Installs exactly the packages of the lock file.
    fn install(&self, locked: &[Package], limit: Duration) -> Result<(), BuildFault>;
    /// What was installed.
    fn installed(&self) -> Result<Installed, BuildFault>;
}

/// The inputs of every package manager.
#[derive(Debug)]
pub(super) struct BuildInputs<'a> {
    /// Its name.
    pub(super) name: &'static str,
    /// The environment's directory.
    pub(super) root: &'a Path,
    /// The interpreter that will load the packages.
    pub(super) interpreter: &'a InterpreterInfo,
    /// Commands that choose and fetch packages.
    pub(super) command_env: &'a CommandEnv<'a>,
    /// Commands that build what was fetched.
    pub(super) builder: &'a CommandEnv<'a>,
    pub(super) sources: &'a PackageSources,
    pub(super) manifest: &'a DependencyManifest,
    /// The time (RFC 3339) before which everything must have been published, if there is a minimum age.
    pub(super) published_before: Option<String>,
}

impl BuildInputs<'_> {
    /// A command that ran to its end, or the fault of the build if it did not.
    pub(super) fn finished(
        &self,
        finished: Result<FinishedCommand, InstallerFault>,
        stage: BuildStage,
    ) -> Result<FinishedCommand, BuildFault> {
        finished.map_err(|fault| BuildFault::command(fault, stage, self.name, Some(self.sources)))
    }

    /// Writes one of the files a package manager reads, atomically.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), BuildFault> {
        replace(self.root, name, text)
            .map_err(|e| BuildFault::file("cannot write", &self.root.join(name), &e))
    }

    /// Reads one of the files it wrote.
    pub(super) fn read(&self, name: &str) -> Result<String, BuildFault> {
        let path = self.root.join(name);
        inspection::read_to_string(&path).map_err(|e| BuildFault::file("cannot read", &path, &e))
    }

    /// Removes a file or directory of the environment.
    pub(super) fn clear(&self, name: &str) -> Result<(), BuildFault> {
        let path = self.root.join(name);
        inspection::clear(&path).map_err(|e| BuildFault::file("cannot clear", &path, &e))
    }
}

/// Writes a file beside its final place, and moves it there whole.
fn replace(root: &Path, name: &str, text: &str) -> io::Result<()> {
    let partial = root.join(format!(".{name}.partial"));
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, root.join(name))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn files_of_package_managers_are_replaced_whole() {
        let root = tempfile::tempdir().unwrap();
        replace(root.path(), "Gemfile", "gem 'a'").unwrap();
        let mut opened = std::fs::File::open(root.path().join("Gemfile")).unwrap();
        replace(root.path(), "Gemfile", "gem 'b'").unwrap();
        let mut seen = String::new();
        opened.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "gem 'a'", "a reader sees one or the other, never a part");
        assert_eq!(std::fs::read_to_string(root.path().join("Gemfile")).unwrap(), "gem 'b'");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
