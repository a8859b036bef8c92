//! Preparing ahead of need.

use std::sync::mpsc;
use std::time::Duration;

use recurgent::{Language, PreparationStatus, PreparationTicket};
use serde_json::json;

use crate::fixture::{EnvironmentFixture, call, failure, failure_facts, value};
use crate::sources::PackageServer;

const HANG_TIMEOUT: Duration = Duration::from_mins(5);

fn sluggish(fixture: &EnvironmentFixture) -> PreparationTicket {
    fixture.runtime().prepare("tester").dependency("sluggish", "").start()
}

#[test]
fn calls_fail_with_a_reason_before_it_is_ready_and_work_after() {
    let fixture = PackageServer::gems().fixture();
    fixture.model_writes("check", "require 'sluggish'\n7", &json!([]));
    let ticket = sluggish(&fixture);
    assert_eq!(ticket.status(), PreparationStatus::Pending);
    assert_eq!(ticket.await_ready(Duration::from_millis(50)), PreparationStatus::Pending);
    let mut agent = ticket.agent().unwrap();
    let early = call(&mut agent, "check");
    assert_eq!(
        failure_facts(&early, "prep_ticket_id"),
        ("environment_preparing", true, Some(ticket.id()))
    );
    assert_eq!(fixture.last_log_entry()["prep_ticket_id"], json!(ticket.id()));
    assert_eq!(fixture.last_log_entry()["outcome_error_type"], json!("environment_preparing"));

    assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Ready);
    assert_eq!(value(&call(&mut agent, "check")), &json!(7));
    let logged = fixture.last_log_entry();
    assert_eq!(logged["prep_ticket_id"], json!(ticket.id()));
    assert_eq!(logged["environment_cache_hit"], json!(true));
    assert_eq!(ticket.failure(), None);
}

#[test]
fn callbacks_are_called_once_it_is_settled_or_at_once() {
    let fixture = PackageServer::gems().fixture();
    let ticket = sluggish(&fixture);
    let (sender, notes) = mpsc::channel();
    let (early, late) = (sender.clone(), sender.clone());
    ticket
        .on_ready(|_| panic!("a callback that panics affects no other"))
        .on_ready(move |agent| early.send(format!("ready {}", agent.role())).unwrap())
        .on_error(|failure| panic!("{failure}"));
    assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Ready);
    assert_eq!(notes.recv_timeout(HANG_TIMEOUT).unwrap(), "ready tester");
    ticket.on_ready(move |_| late.send("late".to_owned()).unwrap());
    assert_eq!(notes.try_recv().unwrap(), "late", "on this thread, before it returns");

    let broken = fixture.runtime().prepare("tester").dependency("no-such-gem", "").start();
    let error = sender.clone();
    broken
        .on_ready(|agent| panic!("{agent}"))
        .on_error(move |failure| error.send(failure.kind.code().to_owned()).unwrap());
    assert_eq!(notes.recv_timeout(HANG_TIMEOUT).unwrap(), "dependency_resolution_failed");
    let late = sender;
    broken.on_error(move |_| late.send("late".to_owned()).unwrap());
    assert_eq!(notes.try_recv().unwrap(), "late");
}

#[test]
fn a_permanent_cause_is_named_and_a_passing_one_may_be_tried_again() {
    let mut fixture = PackageServer::gems().fixture();
    let runtime = fixture.runtime();
    for (name, version, kind) in [
        ("no-such-gem", "", "dependency_resolution_failed"),
        ("beta", "1'; exit", "invalid_dependency_manifest"),
    ] {
        let ticket = runtime.prepare("tester").dependency(name, version).start();
        assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Error);
        assert_eq!(ticket.failure().unwrap().kind.code(), kind);
        let outcome = call(&mut ticket.agent().unwrap(), "check");
        assert_eq!(failure_facts(&outcome, "prep_ticket_id"), (kind, false, Some(ticket.id())));
    }
    let ticket = runtime.prepare("tester").dependency("faulty", "").start();
    assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Error);
    let outcome = call(&mut ticket.agent().unwrap(), "check");
    assert_eq!(failure_facts(&outcome, "stage"), ("environment_preparing", true, None));
    let cause = &failure(&outcome).metadata["cause"];
    assert_eq!(cause["error_type"], json!("dependency_activation_failed"), "{cause:#}");
    assert_eq!(cause["metadata"]["dependency_name"], json!("faulty"));
    assert_eq!(ticket.status(), PreparationStatus::Pending, "it is prepared again");
    assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Error);

    fixture.set("blocked_gems", "beta");
    let ticket = fixture.runtime().prepare("tester").dependency("beta", "").start();
    assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Error);
    assert_eq!(ticket.failure().unwrap().kind.code(), "dependency_policy_violation");
}

#[test]
fn a_cancelled_preparation_ends_in_error() {
    let fixture = PackageServer::gems().fixture();
    let ticket = sluggish(&fixture);
    ticket.cancel();
    assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Error);
    assert_eq!(ticket.failure().unwrap().kind.code(), "cancelled");
}

#[test]
fn a_bad_role_is_found_out_at_once() {
    let fixture = EnvironmentFixture::new(Language::Ruby);
    let ticket = fixture.runtime().prepare("  ").start();
    assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Error);
    assert_eq!(ticket.failure().unwrap().kind.code(), "invalid_call");
    assert!(ticket.agent().is_err());
}
