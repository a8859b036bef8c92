//! The engine's process: when it starts, who shares it, how it ends.

use std::cell::Cell;
use std::time::Duration;

use recurgent::Cancellation;
use recurgent::provider::ModelProgress;
use recurgent::provider::engine::EngineFailure;
use rustix::process::Signal;

use crate::fixture::{EngineFixture, ask, check_program, has_ended, kill, signal, until};

#[test]
fn it_starts_on_demand_and_is_shared() {
    let fixture = EngineFixture::new();
    assert_eq!(fixture.running(), None);
    check_program(&ask(&fixture.client(), &fixture.short()).unwrap());
    let first = fixture.running().unwrap();
    check_program(&ask(&fixture.client(), &fixture.short()).unwrap());
    let second = fixture.running().unwrap();
    assert_eq!((first.pid, first.answered), (second.pid, 1));
    assert_eq!((second.answered, second.requests), (2, 0));
    assert_eq!(second.model, Some(fixture.path("scripted.gguf")));
    assert!(fixture.client().stop().unwrap());
    until("the engine has ended", || has_ended(first.pid));
    assert!(!fixture.folder().join("engine.sock").exists());
    assert!(!fixture.client().stop().unwrap());
}

#[test]
fn another_model_replaces_the_loaded_one() {
    let fixture = EngineFixture::new();
    let client = fixture.client();
    check_program(&ask(&client, &fixture.short()).unwrap());
    let endless = ask(&client, &fixture.request("endless.gguf")).unwrap();
    assert_eq!(endless.texts[0].tokens, 8);
    assert_eq!(fixture.running().unwrap().model, Some(fixture.path("endless.gguf")));
}

#[test]
fn a_killed_engine_is_a_fault_and_the_next_call_starts_another() {
    let fixture = EngineFixture::new();
    let client = fixture.client();
    let killed = Cell::new(None);
    let answer = client.generate_with(
        &fixture.long(),
        Duration::from_mins(2),
        &Cancellation::default(),
        &mut |stage| {
            if matches!(stage, ModelProgress::Writing { .. }) && killed.get().is_none() {
                let pid = fixture.running().unwrap().pid;
                kill(pid);
                killed.set(Some(pid));
            }
        },
    );
    let Err(EngineFailure::Ended(message)) = answer else { panic!("{answer:?}") };
    assert!(message.contains("it was killed"), "{message}");
    check_program(&ask(&client, &fixture.short()).unwrap());
    assert_ne!(Some(fixture.running().unwrap().pid), killed.get());
}

#[test]
fn an_idle_engine_ends_and_the_next_call_starts_another() {
    let fixture = EngineFixture::new();
    let client = fixture.client_with("0.3");
    for ended in 1..=2 {
        check_program(&ask(&client, &fixture.short()).unwrap());
        let has_ended = || fixture.log().matches("ends: idle").count() == ended;
        until("the engine is idle and ends", || has_ended() && fixture.running().is_none());
    }
}

#[test]
fn an_engine_that_no_client_can_reach_ends() {
    let fixture = EngineFixture::new();
    check_program(&ask(&fixture.client(), &fixture.short()).unwrap());
    let first = fixture.running().unwrap().pid;
    std::fs::rename(fixture.folder(), fixture.path("elsewhere")).unwrap();
    check_program(&ask(&fixture.client(), &fixture.short()).unwrap());
    assert_ne!(fixture.running().unwrap().pid, first);
    until("the first engine has ended", || has_ended(first));
    check_program(&ask(&fixture.client(), &fixture.short()).unwrap());
}

#[test]
fn a_cancelled_request_is_given_up() {
    let fixture = EngineFixture::new();
    let client = fixture.client();
    let cancellation = Cancellation::default();
    let answer = client.generate_with(
        &fixture.long(),
        Duration::from_mins(2),
        &cancellation,
        &mut |stage| {
            if matches!(stage, ModelProgress::Writing { .. }) {
                cancellation.cancel();
            }
        },
    );
    assert!(matches!(answer, Err(EngineFailure::Cancelled)), "{answer:?}");
    until("the engine notices", || fixture.running().is_some_and(|status| status.requests == 0));
    assert!(fixture.log().contains("a client hung up"), "{}", fixture.log());
    assert_eq!(fixture.running().unwrap().answered, 0);
}

#[test]
fn a_request_that_takes_too_long_times_out() {
    let fixture = EngineFixture::new();
    let limit = Duration::from_millis(1);
    let answer = fixture.client().generate(&fixture.long(), limit, &Cancellation::default());
    assert!(matches!(answer, Err(EngineFailure::TimedOut)), "{answer:?}");
    check_program(&ask(&fixture.client(), &fixture.short()).unwrap());
}

#[test]
fn many_starters_at_once_share_one_engine() {
    let fixture = EngineFixture::new();
    std::thread::scope(|scope| {
        let starter = || check_program(&ask(&fixture.client(), &fixture.short()).unwrap());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(starter)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(fixture.running().unwrap().answered, 4);
    assert_eq!(fixture.log().matches("listens at").count(), 1, "{}", fixture.log());
}

#[test]
fn sigterm_ends_it_and_its_request_fails() {
    let fixture = EngineFixture::new();
    let pid = Cell::new(None);
    let answer = fixture.client().generate_with(
        &fixture.long(),
        Duration::from_mins(2),
        &Cancellation::default(),
        &mut |stage| {
            if matches!(stage, ModelProgress::Writing { .. }) && pid.get().is_none() {
                let running = fixture.running().unwrap().pid;
                signal(running, Signal::TERM);
                pid.set(Some(running));
            }
        },
    );
    let failed = matches!(answer, Err(EngineFailure::Failed(_) | EngineFailure::Ended(_)));
    assert!(failed, "{answer:?}");
    until("the engine has ended", || has_ended(pid.get().unwrap()));
    assert!(fixture.log().contains("ends: asked to end"), "{}", fixture.log());
}

#[test]
fn a_damaged_model_is_refused_and_the_engine_goes_on() {
    let fixture = EngineFixture::new();
    let client = fixture.client();
    let whole = std::fs::read(fixture.path("scripted.gguf")).unwrap();
    std::fs::write(fixture.path("half.gguf"), &whole[..whole.len() / 2]).unwrap();
    for model in ["half.gguf", "missing.gguf"] {
        let answer = ask(&client, &fixture.request(model));
        let Err(EngineFailure::Refused(message)) = answer else { panic!("{answer:?}") };
        assert!(message.contains(model), "{message}");
    }
    check_program(&ask(&client, &fixture.short()).unwrap());
}

#[test]
fn a_program_that_cannot_start_is_named() {
    let fixture = EngineFixture::new();
    let launch = |command: &str| {
        let launch = recurgent::provider::engine::EngineLaunch {
            command: Some(command.into()),
            folder: Some(fixture.folder()),
            ..Default::default()
        };
        let client = recurgent::provider::engine::EngineClient::new(launch);
        ask(&client, &fixture.short()).unwrap_err().to_string()
    };
    assert!(launch("/nowhere/recurgent").contains("set engine_command"));
    let message = launch("/bin/false");
    assert!(message.contains("did not start: it ended with status 1"), "{message}");
}
