//! Boots zygotes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use lifecycle::dialect::Language;

use super::sandbox::{Reached, Sandbox, SandboxAccess, Starts};
use super::zygote::{Spawner, Zygote, ZygoteSettings};
use super::zygote_pool::{Activation, BootFault, ZygoteKey};
use super::{WorkerOptions, locked};
use crate::environment::Ready;
use crate::grants::Grants;
use crate::guest::interpreter::{self, InterpreterInfo};

/// The interpreters, the sandbox and the thread that zygotes are booted with.
#[derive(Debug)]
pub(super) struct Launcher {
    python: Installed,
    ruby: Installed,
    path: OsString,
    sandbox: Sandbox,
    spawner: Spawner,
    activation_limit: Duration,
}

/// A guest language on this machine.
#[derive(Debug)]
struct Installed {
    chosen: Option<PathBuf>,
    /// Kept once found. A missing interpreter is searched for again: it may have been installed since.
    found: Mutex<Option<InterpreterInfo>>,
}

impl Launcher {
    pub(super) fn new(options: &WorkerOptions) -> io::Result<Self> {
        let installed = |chosen: &Option<PathBuf>| Installed {
            chosen: chosen.clone(),
            found: Mutex::default(),
        };
        Ok(Self {
            python: installed(&options.python),
            ruby: installed(&options.ruby),
            path: options.path.clone(),
            sandbox: Sandbox::new(options),
            spawner: Spawner::start()?,
            activation_limit: options.activation_limit,
        })
    }

    /// The containment its zygotes run under.
    pub(super) fn reached(&self) -> &Reached {
        self.sandbox.reached()
    }

    pub(super) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Boots an interpreter for `key`, or explains why it cannot.
    pub(super) fn boot(&self, key: &ZygoteKey) -> Result<Zygote, BootFault> {
        let interpreter = self.interpreter(key.language).map_err(BootFault::Unavailable)?;
        let (arguments, in_use) = match &key.environment {
            Some(environment) => {
                let (ready, in_use) = Ready::open(&environment.root).map_err(|error| {
                    BootFault::ActivationFailed {
                        package: None,
                        problem: missing(environment, &error),
                    }
                })?;
                (ready.boot_arguments(&environment.root), Some(in_use))
            }
            None => (Vec::new(), None),
        };
        let mut read = interpreter.roots.clone();
        read.extend(key.environment.iter().map(|environment| environment.root.clone()));
        let names = key.grants.names();
        let Grants { network, read: granted, write, workspace, .. } = key.grants.clone();
        let local_sockets = granted.is_empty() && write.is_empty() && workspace.is_none();
        let granted_paths = granted.iter().chain(&write).chain(&workspace).cloned().collect();
        read.extend(granted);
        // A workspace is never written itself: what programs change is in a version of their own.
        read.extend(workspace.clone().filter(|_| key.workspace_version.is_none()));
        let access = SandboxAccess {
            read,
            write,
            granted: granted_paths,
            network,
            local_sockets,
            workspace,
            workspace_version: key.workspace_version.clone(),
            names,
            starts: if in_use.is_some() { Starts::Packages } else { Starts::Harness },
        };
        let settings = ZygoteSettings {
            language: key.language,
            interpreter: &interpreter,
            arguments,
            in_use,
            activation_limit: self.activation_limit,
            access,
        };
        Zygote::boot(settings, &self.sandbox, &self.spawner)
    }

    /// The interpreter of this language; the error says what to install.
    pub(super) fn interpreter(&self, language: Language) -> Result<InterpreterInfo, String> {
        let installed = match language {
            Language::Python => &self.python,
            Language::Ruby => &self.ruby,
        };
        let mut found = locked(&installed.found);
        if let Some(interpreter) = found.as_ref() {
            return Ok(interpreter.clone());
        }
        let interpreter = interpreter::find(language, installed.chosen.as_deref(), &self.path)?;
        *found = Some(interpreter.clone());
        Ok(interpreter)
    }
}

fn missing(environment: &Activation, error: &io::Error) -> String {
    format!("the environment {} was removed ({error}); call again to rebuild it", environment.id)
}
