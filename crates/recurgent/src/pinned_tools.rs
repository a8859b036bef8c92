//! Tools pinned in a directory: an export that is read once and never written to.
//!
//! Its programs are candidates after the store's own. What comes of their calls is logged, and not counted anywhere.

use std::collections::BTreeMap;
use std::path::Path;

use lifecycle::artifact::Artifact;
use lifecycle::dialect::Language;
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::tool::Tool;

use crate::store::bundle::ArtifactEntry;
use crate::store::layout;

/// The tools and programs of one directory.
#[derive(Debug, Default)]
pub(crate) struct PinnedTools {
    tools: BTreeMap<Role, Tool>,
    programs: BTreeMap<(Role, Method, Language), Vec<Artifact>>,
}

impl PinnedTools {
    /// Reads an export; every file of it must be readable, since it is pinned to be relied on.
    pub(crate) fn load(directory: &Path) -> Result<Self, String> {
        let read = layout::read(directory).map_err(|fault| fault.to_string())?;
        if let Some(refused) = read.refused.first() {
            return Err(format!(
                "{} of {}: {}; export the tools again, or unset tools_dir",
                refused.what,
                directory.display(),
                refused.why
            ));
        }
        let mut pinned = Self::default();
        for entry in read.bundle.tools {
            let tool = Tool { name: entry.name.clone(), contract: entry.contract };
            pinned.tools.insert(entry.name, tool);
        }
        for artifact in read.bundle.artifacts.iter().filter_map(ArtifactEntry::running) {
            let key = (artifact.role.clone(), artifact.method.clone(), artifact.language);
            pinned.programs.entry(key).or_default().push(artifact);
        }
        Ok(pinned)
    }

    /// The programs for a call.
    pub(crate) fn programs(&self, request: &CallRequest) -> &[Artifact] {
        if self.programs.is_empty() {
            return &[];
        }
        let key = (request.role.clone(), request.method.clone(), request.language);
        self.programs.get(&key).map_or(&[], Vec::as_slice)
    }

    /// A tool by its name.
    pub(crate) fn tool(&self, name: &Role) -> Option<&Tool> {
        self.tools.get(name)
    }
}
