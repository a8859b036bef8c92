//! Workspaces that programs may change. Each attempt works on its own version, and what an accepted one changed is
//! copied to the workspace:
//!
//! ```text
//! begin ──► WorkspaceVersion ── VersionMount ──► the sandbox: a layer over the workspace or, where the kernel does not allow that, a copy
//!             └─ finish ──► changes ── stage ──► Staged ── apply ──► the workspace
//! ```
//!
//! The version of a program that another program called begins as the caller's, and its changes go there.

mod apply;
mod changes;
mod copy;
mod folder;
mod snapshot;
mod stage;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use changes::Change;
use folder::Folder;
use snapshot::Snapshot;
pub(crate) use stage::Staged;

use crate::grants::Grants;
use crate::worker::sandbox::{Sandbox, Scratch, VersionMount};

/// Changed files that are named.
const MAX_NAMES: usize = 8;

/// The version of a workspace that one attempt works on.
#[derive(Debug)]
pub(crate) struct WorkspaceVersion {
    /// Where accepted changes go.
    workspace: Folder,
    /// The workspace when the attempt began.
    before: Snapshot,
    /// A copy of it and what the copy has, where one is needed.
    copy: Option<(Scratch, Snapshot)>,
    mount: VersionMount,
    /// What the program sees, as soon as that exists.
    root: OnceLock<Folder>,
    changes: OnceLock<Vec<Change>>,
}

impl WorkspaceVersion {
    /// A version for one attempt, of what the calling program works on or of the workspace itself; `None` if programs may
    /// not change a workspace.
    pub(crate) fn begin(
        grants: &Grants,
        caller: Option<&Self>,
        sandbox: &Sandbox,
    ) -> Result<Option<Self>, String> {
        let Some(path) = grants.workspace.as_ref().filter(|_| grants.workspace_write) else {
            return Ok(None);
        };
        let unusable = |error: std::io::Error| {
            format!("the workspace {} cannot be used: {error}", path.display())
        };
        let workspace = match caller {
            Some(caller) => caller.root(),
            None => Folder::open(path),
        };
        let workspace = workspace.map_err(unusable)?;
        let before = Snapshot::of(&workspace)?;
        let layers = |files: &Snapshot| {
            sandbox.layers_over(path) && !(files.has_foreign && Sandbox::maps_one_user())
        };
        if caller.is_none() && layers(&before) {
            let mount = VersionMount { source: path.clone(), is_layer: true };
            return Ok(Some(Self::new(workspace, before, None, mount)));
        }
        let scratch = sandbox.directory().map_err(|error| error.to_string())?;
        let source = scratch.as_ref().join("workspace");
        std::fs::create_dir(&source).map_err(unusable)?;
        let copied = Folder::open(&source).map_err(unusable)?;
        copy::copy(&workspace, &before, &copied, Sandbox::hidden_files())?;
        let begun = Snapshot::of(&copied)?;
        // A layer over the copy bounds what the program writes.
        let mount = VersionMount { source, is_layer: layers(&begun) };
        let version = Self::new(workspace, before, Some((scratch, begun)), mount);
        if !version.mount.is_layer {
            let _ = version.root.set(copied);
        }
        Ok(Some(version))
    }

    fn new(
        workspace: Folder,
        before: Snapshot,
        copy: Option<(Scratch, Snapshot)>,
        mount: VersionMount,
    ) -> Self {
        let (root, changes) = (OnceLock::new(), OnceLock::new());
        Self { workspace, before, copy, mount, root, changes }
    }

    /// What the sandbox mounts.
    pub(crate) fn mount(&self) -> &VersionMount {
        &self.mount
    }

    /// Takes the layer that the sandbox mounted.
    pub(crate) fn mounted(&self, layer: OwnedFd) {
        let _ = self.root.set(Folder::of(layer)); // it is mounted once
    }

    fn root(&self) -> std::io::Result<Folder> {
        let root = self.root.get().ok_or(std::io::ErrorKind::NotFound)?;
        Ok(Folder::of(root.as_fd().try_clone_to_owned()?))
    }

    /// Finds out what the program changed. Call it when nothing of the program runs any more. The error says what cannot
    /// be copied.
    pub(crate) fn finish(&self) -> Result<(), String> {
        let Some(root) = self.root.get() else { return Ok(()) };
        let begun = self.copy.as_ref().map_or(&self.before, |(_, begun)| begun);
        let _ = self.changes.set(changes::changes(begun, root, &self.workspace)?);
        Ok(())
    }

    /// Prepares to copy what was changed; `None` if nothing was. The error says why the workspace stays as it is.
    pub(crate) fn stage(&self) -> Result<Option<Staged<'_>>, String> {
        let changes = self.changes.get().map(Vec::as_slice).unwrap_or_default();
        let Some(root) = self.root.get().filter(|_| !changes.is_empty()) else { return Ok(None) };
        Staged::new(changes, &self.before, root, &self.workspace).map(Some)
    }

    /// What was changed, in words.
    pub(crate) fn summary(&self) -> Option<String> {
        let changes = self.changes.get().filter(|changes| !changes.is_empty())?;
        let named = |change: &Change| match change {
            Change::Remove { path, .. } => format!("removed {}", path.display()),
            Change::Make(path) => format!("made {}", path.display()),
            Change::Write { path, .. } => format!("wrote {}", path.display()),
        };
        let mut names: Vec<String> = changes.iter().take(MAX_NAMES).map(named).collect();
        if let Some(more) = changes.len().checked_sub(MAX_NAMES).filter(|more| *more > 0) {
            names.push(format!("{more} more"));
        }
        Some(format!("workspace: {}", names.join(", ")))
    }
}
