//! Tools pinned in a directory: an export that is read once and never written to.
//!
//! Its programs are candidates after the store's own. Outcomes of their calls are logged, and not counted anywhere.

use std::collections::BTreeMap;
use std::path::Path;

use lifecycle::artifact::{Artifact, ArtifactKey};
use lifecycle::dialect::Language;
use lifecycle::example::{Example, PersonRejection};
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::tool::Tool;

use crate::store::bundle::ArtifactEntry;
use crate::store::{Store, StoreFault, layout};

/// The tools and programs of one directory.
#[derive(Debug, Default)]
pub(crate) struct PinnedTools {
    tools: BTreeMap<Role, Tool>,
    programs: BTreeMap<(Role, Method, Language), Vec<Artifact>>,
    examples: BTreeMap<(Role, Method), Vec<Example>>,
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
        for entry in &read.bundle.artifacts {
            let known = pinned.examples.entry((entry.role.clone(), entry.method.clone()));
            let known = known.or_default();
            // The file of each language and contract has all examples of the method.
            let more = entry.examples.iter().filter(|it| !known.contains(it));
            let more: Vec<Example> = more.cloned().collect();
            known.extend(more);
        }
        for artifact in read.bundle.artifacts.iter().filter_map(ArtifactEntry::running) {
            let key = (artifact.role.clone(), artifact.method.clone(), artifact.language);
            pinned.programs.entry(key).or_default().push(artifact);
        }
        Ok(pinned)
    }

    /// The programs for a call. Those that a person rejected are marked so; the store keeps what people said.
    pub(crate) fn programs(
        &self,
        request: &CallRequest,
        store: &dyn Store,
    ) -> Result<Vec<Artifact>, StoreFault> {
        if self.programs.is_empty() {
            return Ok(Vec::new());
        }
        let key = (request.role.clone(), request.method.clone(), request.language);
        let found = self.programs.get(&key).cloned().unwrap_or_default();
        marked(found, store)
    }

    /// Every program, of one role if given, by role, method and language.
    pub(crate) fn list(
        &self,
        role: Option<&Role>,
        store: &dyn Store,
    ) -> Result<Vec<Artifact>, StoreFault> {
        let all = self.programs.values().flatten();
        marked(all.filter(|it| role.is_none_or(|role| it.role == *role)).cloned().collect(), store)
    }

    /// The program under a key.
    pub(crate) fn find(
        &self,
        key: &ArtifactKey,
        store: &dyn Store,
    ) -> Result<Option<Artifact>, StoreFault> {
        let found = self.list(Some(&key.role), store)?;
        Ok(found.into_iter().find(|it| it.key() == *key))
    }

    /// The examples of a method.
    pub(crate) fn examples(&self, role: &Role, method: &Method) -> &[Example] {
        let found = self.examples.get(&(role.clone(), method.clone()));
        found.map_or(&[], Vec::as_slice)
    }

    /// A tool by its name.
    pub(crate) fn tool(&self, name: &Role) -> Option<&Tool> {
        self.tools.get(name)
    }
}

/// The programs, with those marked as rejected that a person rejected.
fn marked(programs: Vec<Artifact>, store: &dyn Store) -> Result<Vec<Artifact>, StoreFault> {
    let mark = |mut artifact: Artifact| {
        let rejections = store.rejections(&artifact.role, &artifact.method)?;
        let is_it = |it: &PersonRejection| {
            it.language == artifact.language && it.checksum == artifact.checksum
        };
        artifact.track_record.rejected = rejections.iter().any(is_it);
        Ok(artifact)
    };
    programs.into_iter().map(mark).collect()
}
