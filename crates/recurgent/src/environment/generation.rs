//! Which build of an environment is current: the first build is in the directory named by `env_id`, refreshed ones are
//! beside it, and a link names the current one.
//!
//! ```text
//! 3f2a…/        the first build; its path is in compiled code, so it is never moved
//! 3f2a….2/      a later one, built beside while programs ran in the first
//! 3f2a….now     ─► 3f2a….2, replaced atomically
//! 3f2a….lock    held while any of them is built or removed
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The extension of the link.
const NOW: &str = "now";

/// The current build.
pub(super) fn current(place: &Path, id: &str) -> PathBuf {
    let named = fs::read_link(place.join(format!("{id}.{NOW}"))).ok();
    let name = named.as_deref().and_then(Path::to_str).filter(|name| owner(name) == Some(id));
    place.join(name.unwrap_or(id))
}

/// The directory of the next build.
pub(super) fn next(place: &Path, id: &str) -> io::Result<PathBuf> {
    let mut latest = 1;
    for entry in fs::read_dir(place)? {
        let name = entry?.file_name();
        let number = name.to_str().filter(|name| owner(name) == Some(id)).map_or(1, number);
        latest = latest.max(number);
    }
    Ok(place.join(format!("{id}.{}", latest + 1)))
}

/// Whether there is any build, finished or not. `true` if it cannot be known.
pub(super) fn has_builds(place: &Path, id: &str) -> bool {
    let Ok(entries) = fs::read_dir(place) else { return true };
    let mut names = entries.map_while(Result::ok).map(|entry| entry.file_name());
    names.any(|name| name.to_str().is_some_and(|name| owner(name) == Some(id)))
}

/// Makes a build the current one.
pub(super) fn make_current(root: &Path) -> io::Result<()> {
    let name = root.file_name().unwrap_or_default();
    let temporary = root.with_extension("next");
    let _ = fs::remove_file(&temporary); // left by a process that was killed here
    symlink(name, &temporary)?;
    fs::rename(&temporary, root.with_extension(NOW))?;
    root.parent().map_or(Ok(()), |place| fs::File::open(place)?.sync_all())
}

/// Removes the link if it names this build.
pub(super) fn retract(root: &Path) {
    let link = root.with_extension(NOW);
    if fs::read_link(&link).is_ok_and(|name| Some(name.as_os_str()) == root.file_name()) {
        let _ = fs::remove_file(link);
    }
}

/// The `env_id` of a build's directory name.
pub(super) fn owner(name: &str) -> Option<&str> {
    let (id, number) = name.split_once('.').unwrap_or((name, "1"));
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_id && number.parse::<u32>().is_ok()).then_some(id)
}

/// The number of a build, from 1.
pub(super) fn number(name: &str) -> u32 {
    name.split_once('.').and_then(|(_, number)| number.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_build_is_current_and_keeps_its_number_when_others_are_removed() {
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
    fn a_link_to_another_directory_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        for target in ["/etc", "../ab", "cd", "ab.build"] {
            symlink(target, place.path().join("ab.now")).unwrap();
            assert_eq!(current(place.path(), "ab"), place.path().join("ab"), "{target}");
            fs::remove_file(place.path().join("ab.now")).unwrap();
        }
    }
}
