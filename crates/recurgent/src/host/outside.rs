//! Calls of tools from outside by a running program: found, bounded, counted, and shown to observers.

use std::sync::Arc;
use std::time::Instant;

use lifecycle::event::EventKind;
use lifecycle::outcome::Outcome;
use lifecycle::outside_tool::{OutsideCall, arguments_text, found_json};
use lifecycle::request::{Arguments, Method, Role, encoded_bytes};
use serde_json::Value;

use super::{AgentFault, Answer, Host, Refusal};
use crate::toolbox::{ToolFault, ToolLimits, Toolbox};

/// Outside tools named in a message.
const MAX_NAMED: usize = 24;

impl Host<'_> {
    /// An outside tool that the agent may call, by its name.
    pub(super) fn outside_tool(&self, name: &str) -> Option<Arc<dyn Toolbox>> {
        self.agent.runtime().toolboxes().find(name.trim(), &self.agent.options().tools)
    }

    fn tool_limits(&self) -> ToolLimits<'_> {
        ToolLimits {
            timeout: self.tree.within(self.agent.options().tool_timeout),
            cancellation: &self.tree.cancellation,
        }
    }

    /// Calls a method of an outside tool. A failure of the tool is an outcome that the program sees.
    pub(super) fn call_outside(
        &mut self,
        toolbox: &dyn Toolbox,
        method: &str,
        arguments: Arguments,
    ) -> Result<Answer, Refusal> {
        let role = Role::parse(toolbox.name()).map_err(AgentFault::from)?;
        let asked = Method::parse(method).map_err(AgentFault::from)?;
        let result = self.outside_result(toolbox, method, arguments);
        let result = result.map_err(|fault| fault.failure(toolbox.name()));
        self.failed_call = result.as_ref().err().cloned();
        Ok(Answer::Outcome(Box::new(Outcome::new(role, asked, result))))
    }

    fn outside_result(
        &mut self,
        toolbox: &dyn Toolbox,
        method: &str,
        arguments: Arguments,
    ) -> Result<Value, ToolFault> {
        let runtime = self.agent.runtime();
        let limits = self.tool_limits();
        let defined = runtime.toolboxes().definitions(toolbox, &limits)?;
        let defined = self.agent.options().tools.narrow(defined);
        let invalid = |misfit: lifecycle::outside_tool::MisfitArguments| {
            ToolFault::InvalidArguments(misfit.to_string())
        };
        let method = defined.method(method).map_err(invalid)?;
        let arguments = method.arguments(arguments).map_err(invalid)?;
        let (name, shown) =
            (format!("{}.{}", defined.name, method.name), arguments_text(&arguments));
        let observers = runtime.observers();
        observers.notify(self.order.request, || EventKind::CallingOutside {
            name: name.clone(),
            arguments: shown.clone(),
        });
        let began = Instant::now();
        let result =
            runtime.toolboxes().call((toolbox, method), arguments, &limits, &self.tree.secrets());
        let took = began.elapsed();
        let ended = match &result {
            Ok(value) => Ok(encoded_bytes(value)),
            Err(fault) => Err(fault.failure(&defined.name).kind.code().to_owned()),
        };
        let call = OutsideCall { name, origin: defined.origin, arguments: shown, ended, took };
        observers.notify(self.order.request, || EventKind::CalledOutside { call: call.clone() });
        self.reached_by_tools.add_outside_call(call, method.reads_only);
        result
    }

    /// What `tools.search` answers.
    pub(super) fn search_outside(&self, words: &str) -> Answer {
        let toolboxes = self.agent.runtime().toolboxes();
        let (usable, _) = toolboxes.granted(&self.agent.options().tools, &self.tool_limits());
        Answer::Value(found_json(&usable, words))
    }

    /// The names of known tools with those of the outside tools that the agent may call.
    pub(super) fn with_outside_names(&self, known: String) -> String {
        let grant = &self.agent.options().tools;
        let all = self.agent.runtime().toolboxes().all();
        let granted = all.iter().filter(|it| grant.covers(it.name(), it.origin()));
        let names: Vec<&str> = granted.map(|it| it.name()).take(MAX_NAMED).collect();
        if names.is_empty() { known } else { format!("{}, {known}", names.join(", ")) }
    }
}
