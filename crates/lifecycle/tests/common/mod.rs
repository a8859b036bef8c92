//! One agent for tests of whole calls: a lister under a contract, what is stored for it, what it reports.

use lifecycle::artifact::{Artifact, Cacheability, RUNTIME_VERSION, TrackRecord};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::Contract;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::execution::{Output, Report, ReportEnding, ResultFrom, WorkerTrace};
use lifecycle::inference::Inferred;
use lifecycle::program::Checksum;
use lifecycle::provenance::Observation;
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use serde_json::{Map, json};

/// It must give at least one item.
fn contract() -> Contract {
    let fields = json!({"deliverable": {"type": "array", "min_items": 1}});
    Contract::compose(None, fields.as_object().unwrap()).unwrap().0.unwrap()
}

/// `lister.list(77)`, asked by no program.
pub(crate) fn request() -> CallRequest {
    CallRequest {
        id: CallId("c".into()),
        lineage: Lineage::Root { trace: TraceId::parse("t").unwrap() },
        role: Role::parse("lister").unwrap(),
        method: Method::parse("list").unwrap(),
        arguments: Arguments { args: vec![json!(77)], kwargs: Map::new() },
        contract: Some(contract()),
        language: Language::Python,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    }
}

/// A program that worked, and was repaired so often.
pub(crate) fn artifact(code: &str, repairs: u32) -> Artifact {
    Artifact {
        role: request().role,
        method: request().method,
        language: Language::Python,
        contract_fingerprint: contract().fingerprint(),
        runtime_version: RUNTIME_VERSION.into(),
        code: code.into(),
        checksum: Checksum::of(code),
        manifest: DependencyManifest::default(),
        cacheability: Cacheability::DelegatedContractTool,
        successes: 1,
        failures: 0,
        repairs,
        track_record: TrackRecord::default(),
    }
}

/// A program that ended like this, and wrote to memory.
pub(crate) fn report(ending: ReportEnding) -> Report {
    Report {
        ending,
        changes: ContextChanges {
            set: Map::from_iter([("k".to_owned(), json!(1))]),
            unset: vec![],
        },
        forged: vec![],
        violations: vec![],
        failed_call: None,
        inferred: Inferred::default(),
        output: Output::default(),
        observed: Observation::default(),
        worker: WorkerTrace::default(),
        result_from: ResultFrom::default(),
    }
}
