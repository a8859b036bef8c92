//! What can go wrong with the database, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use lifecycle::call::StoreFault;
use rusqlite::ErrorCode;

/// Why an operation on the database failed.
#[derive(Debug)]
pub(super) enum SqliteFault {
    /// SQLite reported an error.
    Engine(rusqlite::Error),
    /// The file system reported an error about this path.
    File(PathBuf, io::Error),
    /// The integrity check found this damage.
    Damage(String),
    /// A newer version of this program has changed the schema.
    Newer {
        /// The file's schema version.
        found: usize,
        /// The schema version of this program.
        known: usize,
    },
    /// The file is a database of another program.
    Foreign,
    /// A fault that already says what to do.
    Explained(StoreFault),
}

impl From<rusqlite::Error> for SqliteFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<StoreFault> for SqliteFault {
    fn from(fault: StoreFault) -> Self {
        Self::Explained(fault)
    }
}

/// What to do about each SQLite error.
const ADVICE: [(ErrorCode, &str); 6] = [
    (
        ErrorCode::DatabaseBusy,
        "another process kept it locked for 10 s; run again, or end the process that holds it",
    ),
    (ErrorCode::DiskFull, "the disk is full; free some space and run again"),
    (
        ErrorCode::ReadOnly,
        "it is read-only; make the file and its folder writable, or set RECURGENT_STATE_DIR",
    ),
    (
        ErrorCode::CannotOpen,
        "it cannot be opened; check its permissions, or set RECURGENT_STATE_DIR",
    ),
    (
        ErrorCode::PermissionDenied,
        "access was denied; check its permissions, or set RECURGENT_STATE_DIR",
    ),
    (
        ErrorCode::SystemIoFailure,
        "the disk failed to read or write; check it, or set RECURGENT_STATE_DIR",
    ),
];
const DAMAGE_ADVICE: &str = "it is damaged; move it away and run again";
const OTHER_ADVICE: &str =
    "run again; if the error persists, move the file away or set RECURGENT_STATE_DIR";

impl SqliteFault {
    /// Whether the file itself is broken.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Engine(error) => error.sqlite_error_code().is_some_and(|code| {
                [ErrorCode::NotADatabase, ErrorCode::DatabaseCorrupt].contains(&code)
            }),
            Self::Damage(_) => true,
            Self::File(..) | Self::Newer { .. } | Self::Foreign | Self::Explained(_) => false,
        }
    }

    /// The fault for the caller of the store: the path, what to do next, and the cause. A store in memory has no path.
    pub(super) fn explained(self, path: Option<&Path>) -> StoreFault {
        let path = path.unwrap_or(Path::new("in memory"));
        let unavailable = |path: &Path, advice: &str, cause: &dyn std::fmt::Display| {
            StoreFault::Unavailable(format!("the store {}: {advice} ({cause})", path.display()))
        };
        let is_damage = self.is_damage();
        match self {
            Self::Engine(error) => {
                let code = error.sqlite_error_code();
                let row = ADVICE.iter().find(|(applies, _)| Some(*applies) == code);
                let other = if is_damage { DAMAGE_ADVICE } else { OTHER_ADVICE };
                unavailable(path, row.map_or(other, |(_, advice)| advice), &error)
            }
            Self::File(path, error) => unavailable(
                &path,
                "cannot be made or used; make its folder writable, or set RECURGENT_STATE_DIR to one that is",
                &error,
            ),
            Self::Damage(what) => unavailable(path, DAMAGE_ADVICE, &what),
            Self::Newer { found, known } => unavailable(
                path,
                "it was written by a newer version of this program and is left as it is; \
                 upgrade, or set RECURGENT_STATE_DIR to another folder",
                &format_args!("it has schema {found}, this program knows {known}"),
            ),
            Self::Foreign => unavailable(
                path,
                "it is a database of another program and is left as it is; \
                 move it away, or set RECURGENT_STATE_DIR to another folder",
                &"its application_id is not that of this program",
            ),
            Self::Explained(fault) => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn the_advice_fits_the_error() {
        for (code, advice) in [
            (ffi::SQLITE_CORRUPT, "it is damaged; move it away"),
            (ffi::SQLITE_NOTADB, "it is damaged; move it away"),
            (ffi::SQLITE_FULL, "the disk is full"),
            (ffi::SQLITE_INTERNAL, "run again; if the error persists"),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let fault = SqliteFault::from(error).explained(None).to_string();
            assert!(fault.contains(advice), "{code}: {fault}");
        }
    }
}
