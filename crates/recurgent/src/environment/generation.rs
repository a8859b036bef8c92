//! Which build of an environment counts: the first lies where `env_id` says, one that was refreshed
//! beside it, and a link tells.
//!
//! ```text
//! 3f2a…/        the first build; its path is in compiled code, so it is never moved
//! 3f2a….2/      a later one, built beside while programs ran in the first
//! 3f2a….now     ─► 3f2a….2, exchanged at once for everybody
//! 3f2a….lock    held by the process that builds or removes any of them
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The extension of the link.
const NOW: &str = "now";

/// The build that counts.
pub(super) fn current(place: &Path, id: &str) -> PathBuf {
    let named = fs::read_link(place.join(format!("{id}.{NOW}"))).ok();
    let name = named.as_deref().and_then(Path::to_str).filter(|name| owner(name) == Some(id));
    place.join(name.unwrap_or(id))
}

/// Where a build that is to follow all others goes.
pub(super) fn next(place: &Path, id: &str) -> io::Result<PathBuf> {
    let mut latest = 1;
    for entry in fs::read_dir(place)? {
        let name = entry?.file_name();
        let number = name.to_str().filter(|name| owner(name) == Some(id)).map_or(1, number);
        latest = latest.max(number);
    }
    Ok(place.join(format!("{id}.{}", latest + 1)))
}

/// Makes a build the one that counts.
pub(super) fn make_current(root: &Path) -> io::Result<()> {
    let name = root.file_name().unwrap_or_default();
    let desk = root.with_extension("next");
    let _ = fs::remove_file(&desk); // of a process that was killed right here
    symlink(name, &desk)?;
    fs::rename(&desk, root.with_extension(NOW))?;
    root.parent().map_or(Ok(()), |place| fs::File::open(place)?.sync_all())
}

/// Forgets which build counts, if it is this one.
pub(super) fn retract(root: &Path) {
    let link = root.with_extension(NOW);
    if fs::read_link(&link).is_ok_and(|name| Some(name.as_os_str()) == root.file_name()) {
        let _ = fs::remove_file(link);
    }
}

/// The environment a directory is a build of.
pub(super) fn owner(name: &str) -> Option<&str> {
    let (id, number) = name.split_once('.').unwrap_or((name, "1"));
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_id && number.parse::<u32>().is_ok()).then_some(id)
}

/// How many builds came before, and this one.
pub(super) fn number(name: &str) -> u32 {
    name.split_once('.').and_then(|(_, number)| number.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_build_counts_and_keeps_its_number_when_others_go() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        assert_eq!(current(place.path(), "ab"), at("ab"));
        for name in ["ab", "ab.3", "ab.build", "abc.9"] {
            fs::create_dir(at(name)).unwrap();
        }
        let fourth = next(place.path(), "ab").unwrap();
        assert_eq!(fourth, at("ab.4"));
        assert_eq!(current(place.path(), "ab"), at("ab"), "not before it says so");
        make_current(&fourth).unwrap();
        assert_eq!(current(place.path(), "ab"), fourth);
        retract(&at("ab.3"));
        assert_eq!(current(place.path(), "ab"), fourth, "another build is retracted");
        retract(&fourth);
        assert_eq!(current(place.path(), "ab"), at("ab"));
    }

    #[test]
    fn a_link_that_leads_astray_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        for target in ["/etc", "../ab", "cd", "ab.build"] {
            symlink(target, place.path().join("ab.now")).unwrap();
            assert_eq!(current(place.path(), "ab"), place.path().join("ab"), "{target}");
            fs::remove_file(place.path().join("ab.now")).unwrap();
        }
    }
}
