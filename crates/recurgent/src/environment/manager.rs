//! What is asked of a package manager, whichever it is.

use std::path::Path;
use std::time::Duration;

use lifecycle::dependency::DependencyManifest;

use super::command::{CommandEnv, Ended, InstallerFault};
use super::fault::{BuildFault, BuildStage};
use super::ready::Package;
use super::source::PackageSources;
use super::{Installed, inspection};
use crate::guest::interpreter::InterpreterInfo;

/// Makes an environment in four steps: between the second and the third, policy has its say.
pub(super) trait PackageManager {
    /// Chooses versions, and writes down which.
    fn resolve(&self, limit: Duration) -> Result<(), BuildFault>;
    /// Every package that was chosen.
    fn locked(&self) -> Result<Vec<Package>, BuildFault>;
    /// Installs what was chosen, nothing else.
    fn install(&self, locked: &[Package], limit: Duration) -> Result<(), BuildFault>;
    /// What came of it.
    fn installed(&self) -> Result<Installed, BuildFault>;
}

/// What any of them is given.
#[derive(Debug)]
pub(super) struct BuildInputs<'a> {
    /// What it is called.
    pub(super) name: &'static str,
    /// Where the environment is to be.
    pub(super) root: &'a Path,
    /// Whose packages they are.
    pub(super) interpreter: &'a InterpreterInfo,
    /// Where packages are chosen and fetched.
    pub(super) command_env: &'a CommandEnv<'a>,
    /// Where what was fetched is built.
    pub(super) builder: &'a CommandEnv<'a>,
    pub(super) supply: &'a PackageSources,
    pub(super) manifest: &'a DependencyManifest,
}

impl BuildInputs<'_> {
    /// How a command ended, or why it did not.
    pub(super) fn reported(
        &self,
        ended: Result<Ended, InstallerFault>,
        stage: BuildStage,
    ) -> Result<Ended, BuildFault> {
        ended.map_err(|fault| BuildFault::command(fault, stage, self.name, self.supply))
    }

    /// Writes one of the files a package manager reads.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), BuildFault> {
        let path = self.root.join(name);
        std::fs::write(&path, text).map_err(|e| BuildFault::file("cannot write", &path, &e))
    }

    /// Reads one it wrote.
    pub(super) fn read(&self, name: &str) -> Result<String, BuildFault> {
        let path = self.root.join(name);
        inspection::read_to_string(&path).map_err(|e| BuildFault::file("cannot read", &path, &e))
    }

    /// Removes what it is not to find, or to leave.
    pub(super) fn clear(&self, name: &str) -> Result<(), BuildFault> {
        let path = self.root.join(name);
        inspection::clear(&path).map_err(|e| BuildFault::file("cannot clear", &path, &e))
    }
}
