//! What the benchmarks of this crate share: a call, and a program as long as programs get.

use lifecycle::context::Context;
use lifecycle::dialect::Language;
use lifecycle::program::GeneratedProgram;
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use serde_json::{Map, Value, json};

/// Programs of the stories, one after the other, up to 5 KB; they pass every rule, since what is barred
/// early costs less.
pub(crate) fn typical(language: Language) -> &'static str {
    match language {
        Language::Python => include_str!("typical.py"),
        Language::Ruby => include_str!("typical.rb"),
    }
}

pub(crate) fn generated(language: Language, source: &str) -> GeneratedProgram {
    GeneratedProgram::parse(language, &json!({"code": source})).unwrap()
}

pub(crate) fn request(language: Language, args: Vec<Value>) -> CallRequest {
    CallRequest {
        id: CallId("call".to_owned()),
        lineage: Lineage::Root { trace: TraceId::parse("trace").unwrap() },
        role: Role::parse("bench").unwrap(),
        method: Method::parse("act").unwrap(),
        arguments: Arguments { args, kwargs: Map::new() },
        contract: None,
        language,
        manifest: None,
        context: Context::default(),
        allowance: Allowance::default(),
    }
}

/// As many inputs as are looked for in a program, none of them found.
pub(crate) fn inputs() -> Vec<Value> {
    (0..256).map(|n| json!(format!("another input {n}"))).collect()
}
