//! What other processes may send to the engine.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::fixture::{EngineFixture, ask, check_program};

/// What the engine says to these bytes. Without a line end, the connection is closed after them.
fn said(fixture: &EngineFixture, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(fixture.folder().join("engine.sock")).unwrap();
    let _ = stream.write_all(bytes);
    if !bytes.ends_with(b"\n") {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply
}

#[test]
fn wrong_lines_are_refused_and_the_engine_goes_on() {
    let fixture = EngineFixture::new();
    let client = fixture.client();
    check_program(&ask(&client, &fixture.short()).unwrap());
    let oversized = vec![b' '; (8 << 20) + (1 << 20)];
    for (bytes, part) in [
        (b"not json\n".as_slice(), "not a message"),
        (b"{\"protocol\":99,\"request\":\"status\"}\n", "version 99"),
        (b"{\"request\":\"status\"}\n", "version none"),
        (b"{\"protocol\":1,\"request\":{\"generate\":{\"model\":1}}}\n", "not a message"),
        (b"{\"protocol\":1,\"request\":\"unknown\"}\n", "not a message"),
        (oversized.as_slice(), "more than 8388608 bytes"),
        (b"{\"protocol\":1", ""),
        (b"", ""),
    ] {
        let reply = said(&fixture, bytes);
        assert!(reply.contains(part), "{part:?} is not in {reply:?}");
        assert_eq!(reply.is_empty(), part.is_empty(), "{reply:?}");
    }
    let nested = format!("{{\"protocol\":1,\"request\":{}}}\n", "[".repeat(100_000));
    assert!(said(&fixture, nested.as_bytes()).contains("not a message"));
    let huge = r#"{"protocol":1,"request":{"generate":{"model":"MODEL","system":"","user":"","samples":1000000000,"max_tokens":4294967295}}}"#;
    let huge = huge.replace("MODEL", &fixture.path("endless.gguf").display().to_string());
    assert!(said(&fixture, format!("{huge}\n").as_bytes()).contains("fault"));
    check_program(&ask(&client, &fixture.short()).unwrap());
    assert_eq!(fixture.log().matches("listens at").count(), 1, "it is the same engine");
}

#[test]
fn only_its_user_can_reach_it() {
    let fixture = EngineFixture::new();
    check_program(&ask(&fixture.client(), &fixture.short()).unwrap());
    let mode = |name: &str| {
        std::fs::metadata(fixture.folder().join(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode("engine.sock"), mode("engine.log")), (0o700, 0o600, 0o600));
    if !rustix::process::geteuid().is_root() {
        return; // only root can become another user
    }
    // Even where permissions would let another user in, the engine does not answer.
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    open(&fixture.path(""));
    open(&fixture.folder());
    open(&fixture.folder().join("engine.sock"));
    let connect = "import os, socket, sys\nos.setgid(65534); os.setuid(65534)\n\
        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
        s.settimeout(60)\n\
        try:\n    s.sendall(b'{\"protocol\":1,\"request\":\"status\"}\\n'); print(s.recv(100))\n\
        except (ConnectionResetError, BrokenPipeError):\n    print(b'')\n";
    let output = Command::new("python3")
        .args(["-c", connect])
        .arg(fixture.folder().join("engine.sock"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "b''\n", "{output:?}");
    assert!(fixture.log().contains("refused a connection of another user"));
}

#[test]
fn a_folder_that_others_can_use_is_refused() {
    let fixture = EngineFixture::new();
    std::fs::create_dir(fixture.folder()).unwrap();
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(fixture.folder(), permissions).unwrap();
    let message = ask(&fixture.client(), &fixture.short()).unwrap_err().to_string();
    assert!(message.contains("others may use it (mode 755)"), "{message}");
}
