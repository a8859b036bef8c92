//! `raise` statements.

use ruff_python_ast::{Expr, StmtRaise};
use ruff_text_size::Ranged as _;

use super::Reader;
use crate::dialect::raising::RaiseStatement;

impl Reader<'_> {
    /// Records a statement that raises something new; a bare `raise` passes on what is handled.
    pub(super) fn raises(&mut self, node: &StmtRaise) {
        let Some(raised) = node.exc.as_deref() else { return };
        let line = |offset: usize| self.recorder.position(offset).line;
        let lines = line(node.start().to_usize())..=line(node.end().to_usize());
        self.recorder.found.raises.push(RaiseStatement { class: class(raised), lines });
    }
}

/// The class of what is raised, if it is written there: a variable starts with a small letter.
fn class(raised: &Expr) -> Option<String> {
    let raised = raised.as_call_expr().map_or(raised, |call| &*call.func);
    let name = match (raised.as_name_expr(), raised.as_attribute_expr()) {
        (Some(name), _) => name.id.as_str(),
        (None, Some(attribute)) => attribute.attr.as_str(),
        (None, None) => return None,
    };
    name.starts_with(char::is_uppercase).then(|| name.to_owned())
}
