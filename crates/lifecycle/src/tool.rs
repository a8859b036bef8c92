//! Tools: agents that were forged by `delegate` and can be asked for again by name.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::contract::Contract;
use crate::request::Role;

/// A forged agent: its name and what it promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Its role, which is its name.
    pub name: Role,
    /// What its answers must look like.
    pub contract: Option<Contract>,
}

/// A tool as the registry knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownTool {
    /// The tool.
    pub tool: Tool,
    /// Methods that were called on it.
    pub methods: Vec<String>,
    /// How often it was asked for.
    pub usage_count: u64,
    /// Calls that gave a value.
    pub success_count: u64,
    /// Calls that did not.
    pub failure_count: u64,
    /// Calls that ended because guardrail or outcome retries ran out.
    pub exhaustion_count: u64,
}

impl KnownTool {
    /// As programs and prompts see it.
    pub fn to_json(&self) -> Value {
        let contract = self.tool.contract.as_ref();
        let mut known = json!({
            "purpose": contract.and_then(|c| c.purpose.as_ref()),
            "deliverable": contract.and_then(|c| c.deliverable.as_ref()),
            "acceptance": contract.and_then(|c| c.acceptance.as_ref()),
            "failure_policy": contract.and_then(|c| c.failure_policy.as_ref()),
            "methods": self.methods,
            "usage_count": self.usage_count,
            "success_count": self.success_count,
            "failure_count": self.failure_count,
        });
        // Told only where there is something to tell: every prompt carries it.
        if let (Value::Object(known), 1..) = (&mut known, self.exhaustion_count) {
            known.insert("exhaustion_count".to_owned(), json!(self.exhaustion_count));
        }
        known
    }
}
