//! What a Python program imports, and what it calls it.

use ruff_python_ast::{StmtImport, StmtImportFrom};
use ruff_text_size::Ranged;

use super::super::{Import, Operand};
use super::Reader;

/// The most modules imported whole (`from os import *`) that a bare name is looked for in.
const MAX_STARS: usize = 8;

/// The longest module name that is followed through its uses.
const MAX_MODULE_BYTES: usize = 256;

impl Reader<'_> {
    pub(super) fn import(&mut self, node: &StmtImport) {
        for alias in &node.names {
            let module = alias.name.as_str();
            self.imported(module, alias.start().to_usize());
            // `import a.b` binds `a`; `import a.b as c` binds all of it.
            let top = module.split('.').next().unwrap_or(module);
            match &alias.asname {
                Some(name) => self.bind_module(name.as_str(), module),
                None => self.bind_module(top, top),
            }
        }
    }

    pub(super) fn import_from(&mut self, node: &StmtImportFrom) {
        let Some(module) = node.module.as_ref().filter(|_| node.level == 0) else { return };
        self.imported(module.as_str(), node.start().to_usize());
        for alias in &node.names {
            if alias.name.as_str() == "*" {
                self.star(module.as_str());
                continue;
            }
            let path = format!("{module}.{}", alias.name);
            self.recorder.imported_path(&path, alias.start().to_usize());
            self.bind_module(alias.asname.as_ref().unwrap_or(&alias.name).as_str(), &path);
        }
    }

    fn star(&mut self, module: &str) {
        if self.stars.len() < MAX_STARS && !self.stars.iter().any(|known| known == module) {
            self.stars.push(module.to_owned());
        }
    }

    pub(super) fn imported(&mut self, module: &str, offset: usize) {
        let (optional, position) = (self.recorder.optional > 0, self.recorder.position(offset));
        self.recorder.found.imports.push(Import { module: module.to_owned(), optional, position });
    }

    fn bind_module(&mut self, name: &str, path: &str) {
        let known = path.len() <= MAX_MODULE_BYTES;
        let value = if known { Operand::Path(path.to_owned()) } else { Operand::Unknown };
        self.recorder.bind(name, &value);
    }

    /// A bare name may be any that was imported whole.
    pub(super) fn starred(&mut self, name: &str, offset: usize) {
        for module in std::mem::take(&mut self.stars) {
            self.recorder.path(&format!("{module}.{name}"), offset);
            self.stars.push(module);
        }
    }
}
