//! Boots zygotes: knows the interpreters, the sandbox and the thread that spawns.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use lifecycle::dialect::Language;

use super::sandbox::{Reached, Sandbox, Seen, Starts};
use super::zygote::{Spawner, Zygote, ZygoteSettings};
use super::zygote_pool::{Activation, BootFault, Place};
use super::{WorkerOptions, locked};
use crate::environment::Ready;
use crate::grants::Grants;
use crate::guest::interpreter::{self, InterpreterInfo};

/// Boots zygotes.
#[derive(Debug)]
pub(super) struct Launcher {
    python: Installed,
    ruby: Installed,
    path: OsString,
    sandbox: Sandbox,
    spawner: Spawner,
}

/// A guest language on this machine.
#[derive(Debug)]
struct Installed {
    chosen: Option<PathBuf>,
    /// Kept once found. A missing interpreter is looked for again: it may be installed meanwhile.
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
        })
    }

    /// The containment its zygotes run under.
    pub(super) fn reached(&self) -> &Reached {
        self.sandbox.reached()
    }

    pub(super) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Boots an interpreter in its place, or says what is wrong.
    pub(super) fn boot(&self, place: &Place) -> Result<Zygote, BootFault> {
        let interpreter = self.interpreter(place.language).map_err(BootFault::Unavailable)?;
        let (arguments, in_use) = match &place.environment {
            Some(environment) => {
                let (ready, in_use) = Ready::open(&environment.root).map_err(|error| {
                    BootFault::Inactive { package: None, problem: missing(environment, &error) }
                })?;
                (ready.boot_arguments(&environment.root), Some(in_use))
            }
            None => (Vec::new(), None),
        };
        let mut read = interpreter.roots.clone();
        read.extend(place.environment.iter().map(|environment| environment.root.clone()));
        let Grants { network, read: granted, write } = place.grants.clone();
        let local_sockets = granted.is_empty() && write.is_empty();
        read.extend(granted);
        let seen = Seen {
            read,
            write,
            network,
            local_sockets,
            starts: if in_use.is_some() { Starts::Packages } else { Starts::OwnCode },
        };
        let run_limits = ZygoteSettings {
            language: place.language,
            interpreter: &interpreter,
            arguments,
            in_use,
            seen,
        };
        Zygote::boot(run_limits, &self.sandbox, &self.spawner)
    }

    /// The interpreter of this language, or what to install.
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
    format!("the environment {} is gone ({error}); call again, and it is made anew", environment.id)
}
