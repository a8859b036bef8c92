//! The arguments that name a method's program, and two commands that take nothing else: rollback and pin.

use clap::Args;
use lifecycle::artifact::ArtifactKey;
use lifecycle::program::Checksum;
use lifecycle::request::{Method, Role};
use recurgent::Language;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use serde_json::json;

use crate::command::settings::language_parser;
use crate::exit::CommandFault;
use crate::render;
use crate::render::paint::clean;

/// Most programs of one role that are searched.
const MAX_LISTED: usize = 10_000;

/// Whether the version that runs may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pinning {
    /// It may not.
    Pinned,
    /// It may, by a version that proved itself.
    Free,
}

/// A method, and if there are several programs for it, which.
#[derive(Debug, Args)]
pub(super) struct MethodArgs {
    /// The tool or role
    role: String,
    /// The method
    method: String,
    /// The language, if there are programs in several
    #[arg(long, value_name = "LANGUAGE", value_parser = language_parser())]
    guest: Option<Language>,
    /// The start of the contract's fingerprint, if there are programs under several; `none` for programs without a contract
    #[arg(long, value_name = "FINGERPRINT")]
    contract: Option<String>,
}

impl MethodArgs {
    pub(super) fn rollback(
        &self,
        store: &SqliteStore,
        to: Option<&str>,
        as_json: bool,
    ) -> Result<(), CommandFault> {
        let key = self.key(store)?;
        let to = to.map(|to| version(store, &key, to)).transpose()?;
        let Some(now) = store.rollback(&key, to.as_ref())? else {
            return Err(CommandFault::missing(format!(
                "{} has no earlier version that ever worked; `{}` lists them",
                self.title(),
                self.listing()
            )));
        };
        if as_json {
            return render::json(&json!({"role": key.role, "method": key.method, "current": now}));
        }
        render::note(&format!("{} now runs {now}", self.title()));
        Ok(())
    }

    pub(super) fn pin(
        &self,
        store: &SqliteStore,
        pinning: Pinning,
        as_json: bool,
    ) -> Result<(), CommandFault> {
        let key = self.key(store)?;
        let pinned = pinning == Pinning::Pinned;
        if !store.pin(&key, pinned)? {
            return Err(self.unknown());
        }
        if as_json {
            return render::json(
                &json!({"role": key.role, "method": key.method, "pinned": pinned}),
            );
        }
        let state = match pinning {
            Pinning::Pinned => "is pinned",
            Pinning::Free => "may be replaced again",
        };
        render::note(&format!("the program of {} {state}", self.title()));
        Ok(())
    }

    pub(super) fn key(&self, store: &SqliteStore) -> Result<ArtifactKey, CommandFault> {
        let (role, method) = (Role::parse(&self.role)?, Method::parse(&self.method)?);
        let known = store.artifacts(Some(&role), MAX_LISTED)?;
        let of_method = known.iter().filter(|known| known.current.method == method);
        self.choose(of_method.map(|known| known.current.key()))
    }

    /// The one of a method's programs that the command means.
    pub(super) fn choose(
        &self,
        keys: impl IntoIterator<Item = ArtifactKey>,
    ) -> Result<ArtifactKey, CommandFault> {
        let contract = self.contract.as_deref().unwrap_or_default();
        let is_meant = |key: &ArtifactKey| {
            self.guest.is_none_or(|language| language == key.language)
                && key.contract_fingerprint.as_str().starts_with(contract)
        };
        let mut keys = keys.into_iter().filter(is_meant);
        match (keys.next(), keys.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err(self.unknown()),
            (Some(_), Some(_)) => Err(CommandFault::usage(format!(
                "{} has several programs; say which with --guest and --contract \
                 (`{}` lists them)",
                self.title(),
                self.listing()
            ))),
        }
    }

    pub(super) fn role(&self) -> &str {
        &self.role
    }

    pub(super) fn method(&self) -> &str {
        &self.method
    }

    /// The method's name, without characters that control a terminal.
    pub(super) fn title(&self) -> String {
        clean(&format!("{}.{}", self.role, self.method))
    }

    fn unknown(&self) -> CommandFault {
        CommandFault::missing(format!(
            "no program is stored for {}; `{}` lists what is",
            self.title(),
            self.listing()
        ))
    }

    /// The command that lists the programs of the role, quoted for a shell.
    fn listing(&self) -> String {
        let role = clean(&self.role);
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if role.chars().all(is_plain) && !role.starts_with('-') {
            return format!("recurgent tools show {role}");
        }
        format!("recurgent tools show -- '{}'", role.replace('\'', r"'\''"))
    }
}

/// The version whose checksum begins so, with or without `sha256:`.
fn version(store: &SqliteStore, key: &ArtifactKey, start: &str) -> Result<Checksum, CommandFault> {
    let versions = store.versions(key)?;
    let begins = |checksum: &Checksum| {
        let text = checksum.as_str();
        text.starts_with(start) || text.trim_start_matches("sha256:").starts_with(start)
    };
    let mut found = versions.iter().map(|version| &version.artifact.checksum).filter(|c| begins(c));
    match (found.next(), found.next()) {
        (Some(checksum), None) => Ok(checksum.clone()),
        (Some(_), Some(_)) => {
            Err(CommandFault::usage(format!("{start:?} begins several checksums; give more of it")))
        }
        (None, _) => {
            let known: Vec<&str> = versions.iter().map(|v| v.artifact.checksum.as_str()).collect();
            Err(CommandFault::missing(format!(
                "no version begins with {start:?}; there are: {}",
                known.join(", ")
            )))
        }
    }
}
