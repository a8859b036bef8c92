//! An embedding program with serde types of its own. It ends with 0 if its floats are read as floats and its
//! 30-digit integers survive a call. It compiles only if every type of a public signature can be named.

use std::sync::Arc;

use recurgent::config::{
    AgentOverrides, Config, LogTarget, ManifestMode, ModelMirror, PackageIndex, PackageName, Rule,
    SettingsLayer, SourceMode, StandingMode, Tier,
};
use recurgent::grants::Network;
use recurgent::json::{self, Value};
use recurgent::provider::{ModelName, Price, ProxyAddress, Scripted, ServiceAddress, Usage};
use recurgent::store::sqlite::SqliteStore;
use recurgent::{
    Admission, Agent, Allowance, Budgets, CallDetails, EndedBy, Environment, ExampleFault, FailureKind,
    KnownArtifact, Limit, Nanodollars, Observation, Origin, Outcome, PreparationTicket, ProgramFault,
    ProgramSummary, Reported, Runtime, Standing, TaughtMethod, TraceId, ViolationType, Waited, call,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flattened {
    name: String,
    #[serde(flatten)]
    price: Cost,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Cost {
    amount: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Circle { radius: f64 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(f64),
    Text(String),
}

fn own_types() -> Result<(), serde_json::Error> {
    let flattened = Flattened { name: "tea".into(), price: Cost { amount: 2.5 } };
    assert_eq!(serde_json::from_str::<Flattened>(&serde_json::to_string(&flattened)?)?, flattened);
    assert_eq!(serde_json::from_value::<Flattened>(serde_json::to_value(&flattened)?)?, flattened);
    let tagged: Tagged = serde_json::from_str(r#"{"kind": "Circle", "radius": 1.5}"#)?;
    assert_eq!(tagged, Tagged::Circle { radius: 1.5 });
    assert_eq!(serde_json::from_str::<Untagged>("0.25")?, Untagged::Number(0.25));
    Ok(())
}

/// The parts of values of the library, each with its type.
fn name_types(
    outcome: Outcome,
    settings: SettingsLayer,
    allowance: Allowance,
    program: ProgramSummary,
    ticket: &PreparationTicket,
) {
    let _: Observation = outcome.observed;
    if let Some(details) = outcome.details {
        let CallDetails { trace, usage, origin, admission, .. } = *details;
        let _: (TraceId, Option<Origin>, Option<Admission>) = (trace, origin, admission);
        let Usage { cost, .. } = usage;
        let _: Option<Nanodollars> = cost;
    }
    let _: Option<Nanodollars> = allowance.cost;
    let _: Option<Environment> = ticket.environment();
    if let Err(failure) = outcome.result {
        match failure.kind {
            FailureKind::Timeout(waited) => drop::<Waited>(waited),
            FailureKind::ResourceLimit(limit) => drop::<Limit>(limit),
            FailureKind::Guardrail(violated) => drop::<ViolationType>(violated),
            FailureKind::WorkerCrash(ended) => drop::<EndedBy>(ended),
            FailureKind::Reported(reported) => drop::<Reported>(reported),
            _ => {}
        }
    }
    let program: KnownArtifact = program.program;
    let _: Standing = program.current.track_record.standing;
    let _: Option<ManifestMode> = settings.manifest_mode;
    let _: Option<SourceMode> = settings.source_mode;
    let _: Option<StandingMode> = settings.standing_mode;
    let _: Option<Tier> = settings.minimum_sandbox_tier;
    let _: Option<Network> = settings.network;
    let _: Option<Vec<Rule>> = settings.guardrail_terminal;
    let _: Option<Vec<PackageIndex>> = settings.gem_sources;
    let _: Option<Vec<PackageName>> = settings.allowed_gems;
    let _: Option<Option<ModelMirror>> = settings.model_mirror;
    let _: Option<Option<ServiceAddress>> = settings.base_url;
    let _: Option<Option<ProxyAddress>> = settings.provider_proxy;
    let _: Option<ModelName> = settings.model;
}

fn name_faults(fault: ProgramFault) -> Option<ExampleFault> {
    if let ProgramFault::Example(fault) = fault { Some(fault) } else { None }
}

struct Desk {
    adder: Agent,
}

impl Desk {
    fn next(&self, number: Value) -> Result<Value, Box<dyn std::error::Error>> {
        Ok(call!(self.adder.next(number))?.result?)
    }
}

fn calls() -> Result<(), Box<dyn std::error::Error>> {
    let script = Scripted::new()
        .with("adder.next", "def next(number):\n    return number + 1\n")
        .with("adder.same", "def same(value):\n    return value\n");
    let layer = SettingsLayer { log: Some(LogTarget::Off), ..SettingsLayer::default() };
    let config = Config::defaults().with(&layer)?;
    let runtime = Runtime::builder(config)
        .provider(Arc::new(script))
        .store(Arc::new(SqliteStore::in_memory()?))
        .build()?;
    for program in runtime.programs().list(None)? {
        let ticket = runtime.prepare("adder").start();
        let outcome = runtime.agent("adder").build()?.call("next", (1,))?;
        name_types(outcome, layer.clone(), Allowance::default(), program, &ticket);
    }
    assert_eq!(runtime.programs().taught(None)?, Vec::<TaughtMethod>::new());
    let _ = name_faults;
    let price = Price { input: 1.0, output: 2.0, cached: None };
    let _: Nanodollars = price.of(&Usage::default());
    let overrides = AgentOverrides::new(&SettingsLayer { debug: Some(true), ..SettingsLayer::default() })?;
    let budgets = Budgets { execution: 0, ..Budgets::default() };
    let desk = Desk {
        adder: runtime.agent("adder").overrides(&overrides).budgets(budgets).trace_id("a-trace").build()?,
    };
    let number: Value = json::from_str("123456789012345678901234567890")?;
    let next = desk.next(number)?;
    assert_eq!(next.to_string(), "123456789012345678901234567891");
    let typed: i128 = desk.adder.call_as("next", (123_456_789_012_345_678_901_234_567_890_i128,))?;
    assert_eq!(typed, 123_456_789_012_345_678_901_234_567_891);
    // Types of the program are arguments and values.
    let tea = Flattened { name: "tea".into(), price: Cost { amount: 2.5e-7 } };
    assert_eq!(desk.adder.call_as::<Flattened>("same", (&tea,))?, tea);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    own_types()?;
    calls()
}
